// Package compare sets verdicts side by side: the same run judged by other rules, the same drill run
// again, two runs of any drills.
//
// It reads runs that exist and starts none, and it draws no conclusion that one run a side cannot carry:
// it says whether two measured intervals overlap, never that a gateway got faster. The one idea to know:
// runs are laid over each other at the effective instant of their first fault, since everything before it
// is the machine's pace and everything after it is the gateway's.
package compare
