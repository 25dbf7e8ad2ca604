package gateway

import (
	"fmt"
	"strconv"
	"time"
)

// secondsValue is a flag in seconds, whole or not ("2", "0.3"), as its name says; "300ms" is
// understood too.
type secondsValue struct{ d *time.Duration }

func (v *secondsValue) String() string {
	if v.d == nil {
		return ""
	}
	return strconv.FormatFloat(v.d.Seconds(), 'g', -1, 64)
}

func (v *secondsValue) Set(s string) error {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		*v.d = d
		return nil
	}
	f, err := strconv.ParseFloat(s, 64)
	// A day is far above any sensible bound and far below what overflows a duration.
	if err != nil || !(f >= 0 && f <= 86_400) {
		return fmt.Errorf("%q is not a number of seconds in 0..86400", s)
	}
	*v.d = time.Duration(f * float64(time.Second))
	return nil
}

func (v *secondsValue) Type() string { return "seconds" }
