package clock

import "testing"

// MonoNs is the clock that every process reads, to some 100 ns: between two true readings, unless the
// origin was looked up on a very busy machine.
func TestMonoNsIsTheMachinesClock(t *testing.T) {
	const slack = 100_000 // 100 us
	for range 1000 {
		before := readMono()
		got := MonoNs()
		after := readMono()
		if got < before || got > after+slack {
			t.Fatalf("%d ns before, %d ns after the true clock", before-got, got-after)
		}
	}
}

func BenchmarkMonoNs(b *testing.B) {
	for b.Loop() {
		MonoNs()
	}
}
