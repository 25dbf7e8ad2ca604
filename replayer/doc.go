// Package replayer is the room of everything that sends recorded or planned traffic: load (the open-loop
// client) and trace (recorded requests, what they allow, and new ones).
package replayer
