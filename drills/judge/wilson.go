package judge

import "math"

// z95 is the two-sided 95 % point of the normal distribution.
const z95 = 1.959963984540054

// Wilson95Low is the lower end of the Wilson 95 % interval for k passes in n runs: what the true pass rate
// is at least. 20 of 20 give 0.839, 73 of 73 give 0.950; no run gives 0.
func Wilson95Low(k, n int) float64 {
	if n == 0 {
		return 0
	}
	p, m := float64(k)/float64(n), float64(n)
	centre := p + z95*z95/(2*m)
	spread := z95 * math.Sqrt(p*(1-p)/m+z95*z95/(4*m*m))
	return max(0, (centre-spread)/(1+z95*z95/m))
}
