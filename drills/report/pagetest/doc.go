// Package pagetest opens report pages in a real browser and says what a reader would run into: errors, a
// request to the network, a page wider than the screen, text too faint or text upon text.
//
// Only tests import it. Without a browser a test is skipped by name; with FLEETDRILL_REQUIRE_SHARED=1 it
// fails, so that a continuous-integration run cannot pass by missing it.
package pagetest
