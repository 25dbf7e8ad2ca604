package fleet

// What the data path tells a worker without the core's lock. The core looks at it in its next tick; while a
// veto stands it is news, and the core must be told at once.

// HeardByte notes a byte of an answer at an instant, in monotonic ns, and says whether that is news.
func (w *Worker) HeardByte(at int64) (news bool) {
	w.lastByte.Store(at)
	return w.alert.Load()
}

// HeardBatch notes a new live event batch at an instant, in monotonic ns, and says whether that is news.
func (w *Worker) HeardBatch(at int64) (news bool) {
	w.lastEvent.Store(at)
	return w.alert.Load()
}

// SetEventsLive says whether some rank's event stream is live, so that its silence means something.
func (w *Worker) SetEventsLive(live bool) { w.eventsLive.Store(live) }

// Heed folds in what the data path stored for w, without waiting for the next tick.
func (c *Core) Heed(now int64, w *Worker) { c.fold(now, w) }

// Stop carries out an EndRequest: it calls the End that the request was placed with.
func (r *Request) Stop(cause error) { r.stop(cause) }
