// Package result is what a replay came to, live or simulated: the record of each request, the summary over
// them, and their files.
//
// The one idea: both modes fill the same records and everything else is derived here, so a simulated figure
// and a live one differ by what happened, never by how it was counted. Figures count from the scheduled
// instant and over every request that was offered; what was refused, cut or late stays in the denominator.
//
// Everything but the files is pure. What is sent is package plan, who sends it is package live or sim.
package result
