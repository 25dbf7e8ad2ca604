package load

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// events parses text fed in pieces of the given size and returns "name|data" of each event.
func events(t testing.TB, text string, piece int) (out []string) {
	t.Helper()
	var p sseParser
	for b := []byte(text); len(b) > 0; {
		n := min(piece, len(b))
		if err := p.feed(b[:n], func(e event) error { out = append(out, string(e.name)+"|"+string(e.data)); return nil }); err != nil {
			t.Fatal(err)
		}
		b = b[n:]
	}
	return out
}

func TestEvents(t *testing.T) {
	for _, c := range []struct {
		what, text string
		want       []string
	}{
		{"plain", "data: a\n\ndata: b\n\n", []string{"|a", "|b"}},
		{"no space", "data:a\n\n", []string{"|a"}},
		{"only one space is taken", "data:  a\n\n", []string{"| a"}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"|a", "|b"}},
		{"CR", "data: a\r\rdata: b\r\r", []string{"|a", "|b"}},
		{"mixed", "data: a\r\n\ndata: b\r\r\ndata: c\n\r", []string{"|a", "|b", "|c"}},
		{"many lines", "data: a\ndata:\ndata: b\n\n", []string{"|a\n\nb"}},
		{"named", "event: error\ndata: a\n\ndata: b\n\n", []string{"error|a", "|b"}},
		{"comments and other fields", ": ping\n\nid: 7\nretry: 3\ndata: a\n\n", []string{"|a"}},
		{"field without a colon", "data\n\n", []string{"|"}},
		{"name without data", "event: x\n\ndata: a\n\n", []string{"|a"}},
		{"no blank line", "data: a\n\ndata: b\n", []string{"|a"}},
		{"no line end", "data: a\n\ndata: b", []string{"|a"}},
	} {
		for piece := 1; piece <= len(c.text); piece++ {
			if d := cmp.Diff(c.want, events(t, c.text, piece)); d != "" {
				t.Errorf("%s in pieces of %d (-want +got)\n%s", c.what, piece, d)
			}
		}
	}
}

func TestEventSizeIsBounded(t *testing.T) {
	for what, piece := range map[string]string{"one line": "data: " + strings.Repeat("x", 1000), "many lines": "data: " + strings.Repeat("x", 1000) + "\n"} {
		var p sseParser
		var err error
		fed := 0
		for ; err == nil && fed < 10*maxEvent; fed += len(piece) {
			err = p.feed([]byte(piece), func(event) error { t.Fatal("an event"); return nil })
		}
		if err == nil || fed > maxEvent+10_000 {
			t.Errorf("%s: %v after %d bytes", what, err, fed)
		}
	}
}

func TestFeedStopsAtTheFirstFailure(t *testing.T) {
	var p sseParser
	failure, calls := errors.New("enough"), 0
	err := p.feed([]byte("data: a\n\ndata: b\n\n"), func(event) error { calls++; return failure })
	if err != failure || calls != 1 {
		t.Errorf("%v after %d events", err, calls)
	}
}

// eventsSlowly is the standard read aloud: cut into lines, then events.
func eventsSlowly(text string) (out []string) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	lines := strings.Split(text, "\n")
	name, data := "", []string(nil)
	for _, l := range lines[:len(lines)-1] {
		if l == "" {
			if data != nil {
				out = append(out, name+"|"+strings.Join(data, "\n"))
			}
			name, data = "", nil
			continue
		}
		field, value, _ := strings.Cut(l, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			name = value
		}
	}
	return out
}

// However the bytes are cut, the events are those of the standard.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: a\r\n\r\nevent: error\ndata: b\n\n", "\r\n\r\rdata\n\n", ":x\ndata:{}\n\ndata: [DONE]\n\n"} {
		f.Add(s, 1)
		f.Add(s, 7)
	}
	f.Fuzz(func(t *testing.T, text string, piece int) {
		piece = max(1, piece)
		if d := cmp.Diff(eventsSlowly(text), events(t, text, piece)); d != "" {
			t.Fatalf("%q in pieces of %d (-want +got)\n%s", text, piece, d)
		}
	})
}
