// Package replayer is the room of everything that sends recorded or planned traffic: load (the open-loop
// client), trace (recorded requests, what they allow, and new ones), plan (rows as requests), live and sim
// (the two ways to replay a plan), result and report (what came of it).
package replayer
