// Package pagestyle is the look that fleetdrill's HTML pages have in common: colours for light and dark,
// type, panels and tables. A page adds what only it draws.
package pagestyle

import _ "embed" // for css

//go:embed base.css
var css string

// CSS is the style sheet. Everything it needs is in it: a page stays one file that needs no network.
func CSS() string { return css }
