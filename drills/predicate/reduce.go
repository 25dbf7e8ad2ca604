package predicate

import (
	"slices"
)

func isStream(n *call) bool { _, ok := streamOf(n); return ok }

// reduce turns a stream into a number.
func (ev evaluator) reduce(name string, n *call) value {
	stream, worker := n.of, ""
	if p, ok := n.arg.(*path); ok {
		stream = p.name
	}
	if n.worker != nil {
		if worker = ev.env.Worker(n.worker.name); worker == "" {
			return unknown("%s is not chosen yet", n.worker.name)
		}
	}
	all := ev.kept(ev.env.events(stream, ev.lo, ev.hi))
	mine := all
	if worker != "" {
		mine = slices.DeleteFunc(slices.Clone(all), func(x event) bool { return x.worker != worker })
	}
	switch name {
	case "count":
		return num(float64(len(mine)), UnitNone)
	case "rate":
		if ev.hi <= ev.lo {
			return unknown("the window is empty")
		}
		return num(float64(len(mine))/seconds(ev.hi-ev.lo), UnitNone)
	case "share":
		return ev.share(stream, worker, all, mine)
	}
	return summary(name, stream, mine)
}

// kept leaves out the events of excepted workers.
func (ev evaluator) kept(all []event) []event {
	return slices.DeleteFunc(all, func(x event) bool { return slices.Contains(ev.except, x.worker) })
}

// share is a worker's part of a stream, or, without a worker, the stream's part of the requests.
func (ev evaluator) share(stream, worker string, all, mine []event) value {
	whole := len(all)
	if worker == "" {
		whole = len(ev.kept(ev.env.events("requests", ev.lo, ev.hi)))
	}
	if whole == 0 {
		return unknown("there is no request to take a share of in the window")
	}
	return num(float64(len(mine))/float64(whole), UnitNone)
}

// summary refuses a quantile of too few values, which would be their maximum under another name.
func summary(name, stream string, events []event) value {
	need := quantiles[name].min
	if len(events) == 0 {
		return unknown("the window has no value of %s", stream)
	}
	if len(events) < need {
		return unknown("%s(%s) needs %d values and the window has %d", name, stream, need, len(events))
	}
	values := make([]float64, len(events))
	sum := 0.0
	for i, x := range events {
		values[i] = x.value
		sum += x.value
	}
	unit := catalogue[stream].Unit
	switch name {
	case "mean":
		return num(sum/float64(len(values)), unit)
	case "max":
		return num(slices.Max(values), unit)
	case "min":
		return num(slices.Min(values), unit)
	}
	return num(quantile(values, quantiles[name].q), unit)
}

// overTime is mean, max or min of a gauge over the samples of the window; outside a window it is the value
// itself. The mean weighs each sample with the time until the next one.
func (ev evaluator) overTime(name string, at func(evaluator) value) value {
	if !ev.window {
		return at(ev)
	}
	var vs []value
	total, weight := 0.0, 0.0
	samples := ev.env.rec.Samples
	for i := ev.env.firstSample(ev.lo); i < len(samples) && samples[i].ReceivedNs <= ev.hi; i++ {
		in := ev
		in.k, in.window = i, false
		v := at(in)
		if v.st != stKnown {
			continue
		}
		until := ev.hi
		if i+1 < len(samples) {
			until = min(until, samples[i+1].ReceivedNs)
		}
		w := seconds(until-samples[i].ReceivedNs) + 1e-9 // the last sample of a window counts a little
		total, weight = total+w*(v.lo+v.hi)/2, weight+w
		vs = append(vs, v)
	}
	if len(vs) == 0 {
		return unknown("the window has no sample of it")
	}
	if name == "mean" {
		return num(total/weight, vs[0].unit)
	}
	return foldNumbers(name, vs)
}
