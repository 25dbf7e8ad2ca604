// Package replayer is the room of everything that sends recorded or planned traffic: load (the open-loop
// client).
package replayer
