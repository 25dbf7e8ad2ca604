// Package scenario reads drill files: strict YAML in, a typed and checked Scenario out.
//
// It starts nothing and judges nothing. The one idea to know: every mistake that can be seen before a
// fleet starts is an error here, with file, line, column and a suggestion, and all of them are reported
// at once. What the language knows but this version cannot do yet is such an error too, never ignored.
package scenario
