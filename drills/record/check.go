package record

import (
	"fmt"
	"path/filepath"
)

// check refuses what decodes but cannot be a run. The judge searches samples by time and divides by the
// period, so both must be sound before it sees them; a line that went missing in an edit is not noticed
// here, it shows as a hole.
func check(dir string, r *Record) error {
	head := filepath.Join(dir, HeadFile)
	switch {
	case len(r.Workers) == 0:
		return fmt.Errorf("%s: it names no workers", head)
	case r.PeriodNs <= 0 || r.MaxGapNs < r.PeriodNs:
		return fmt.Errorf("%s: period_ns %d and max_gap_ns %d: want 0 < period_ns <= max_gap_ns", head, r.PeriodNs, r.MaxGapNs)
	}
	for i, m := range r.Marks {
		if m.Name == "" || m.Lo > m.Hi {
			return fmt.Errorf("%s:%d: a mark needs a name and lo <= hi, got %q, %d and %d", filepath.Join(dir, MarksFile), i+1, m.Name, m.Lo, m.Hi)
		}
	}
	for i, s := range r.Samples {
		path := filepath.Join(dir, SamplesFile)
		if s.SentNs > s.ReceivedNs {
			return fmt.Errorf("%s:%d: received at %d, before it was sent at %d", path, i+1, s.ReceivedNs, s.SentNs)
		}
		if i > 0 && s.ReceivedNs < r.Samples[i-1].ReceivedNs {
			return fmt.Errorf("%s:%d: received at %d, before the sample above it", path, i+1, s.ReceivedNs)
		}
	}
	return nil
}
