// Package kinds names the indexes that a gateway can be started with, and makes them.
//
// It holds no index: those are the packages beside it.
//
// The one idea to know: all of them but crtc give the same answers, so a name decides speed and memory only.
// crtc scores too low after a hole, which is what the design it shows does.
package kinds
