// Package report writes what people and machines read after a drill: verdict.json, junit.xml, the
// timeline as text and picture, and report.html.
//
// The way through it: Run (write.go) is laid out into a picture (layout.go places, one file per part
// fills), the templates print what is placed, and place.go holds the little that they ask for. Open
// (folder.go) is the way back from a folder, Inspect the same run told in words.
//
// It decides nothing: verdicts and sentences come from judge, everything drawn comes from the record. The
// one idea to know: report.html is one file that needs no network and no script, so it can be attached to
// a ticket and opened in ten years.
package report
