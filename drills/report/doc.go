// Package report writes what people and machines read after a drill: verdict.json, junit.xml, the
// timeline as text and picture, and report.html.
//
// It decides nothing: verdicts and sentences come from judge, everything drawn comes from the record. The
// one idea to know: report.html is one file that needs no network and no script, so it can be attached to
// a ticket and opened in ten years.
package report
