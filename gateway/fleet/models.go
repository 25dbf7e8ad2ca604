package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"fleetdrill/internal/clock"
	"fleetdrill/internal/contract"
)

const (
	// modelsEvery is how often a worker is asked which models it serves, modelsRetry how soon again after a
	// failure. Adapters that are loaded in between are not missed: see models.adapter.
	modelsEvery = 10 * time.Second
	modelsRetry = time.Second
	// modelsTicks is how many ticks pass between looks at who is to be asked.
	modelsTicks = 4
	// maxModels bounds an answer, bytes: a card is below 1 KB, and an engine has below 1,000 adapters.
	maxModels = 2 << 20
)

// models is what a worker serves, as GET /v1/models says. Workers that serve the same share one, so that a
// request's model is looked up once and not once per worker. It does not change.
type models struct {
	// key is equal for equal content.
	key      string
	bases    map[string]bool
	adapters map[string]bool
	// strict engines refuse a name that they do not serve; nameless ones tell no adapter in their events and
	// hash its blocks like the base model's.
	strict, nameless bool
}

// adapter is the LoRA adapter that a model name means to the worker, empty for the base model. A name that a
// strict engine has not listed is one that it refuses, or an adapter that it loaded since. Nothing is known
// of an engine that did not answer: then every name is the base model's.
func (m *models) adapter(name string) string {
	switch {
	case m == nil || name == "" || m.nameless || m.bases[name]:
		return ""
	case m.adapters[name] || m.strict:
		return name
	}
	return ""
}

// parseModels reads the answer: adapters are the cards with a parent.
func parseModels(body []byte) (*models, error) {
	var in struct {
		Data []struct {
			ID      string  `json:"id"`
			OwnedBy string  `json:"owned_by"`
			Parent  *string `json:"parent"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("reading the list of models: %w", err)
	}
	m := &models{bases: map[string]bool{}, adapters: map[string]bool{}}
	keys := make([]string, 0, len(in.Data))
	for i, card := range in.Data {
		m.strict = (i == 0 || m.strict) && card.OwnedBy == "vllm"
		m.nameless = m.nameless || card.OwnedBy == "sglang"
		adapter := card.Parent != nil && *card.Parent != "" && *card.Parent != card.ID
		if adapter {
			m.adapters[card.ID] = true
		} else {
			m.bases[card.ID] = true
		}
		keys = append(keys, fmt.Sprintf("%q %v %q", card.ID, adapter, card.OwnedBy))
	}
	slices.Sort(keys)
	m.key = strings.Join(keys, "\n")
	return m, nil
}

// models asks a worker which models it serves.
func (p *prober) models(ctx context.Context, url string) (*models, error) {
	resp, err := get(ctx, p.polls, url+"/v1/models")
	if err != nil {
		return nil, fmt.Errorf("asking for the list of models: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxModels))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the list of models: %w", err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("asking for the list of models: %s", resp.Status)
	}
	return parseModels(body)
}

// lookAtModels asks those workers whose list is due.
func (f *Fleet) lookAtModels() {
	if !f.opts.Models {
		return
	}
	f.mu.Lock()
	now := clock.MonoNs()
	var due []*Worker
	for w, m := range f.members {
		if now >= m.nextModels && !m.asking && w.phase == contract.PhaseReady && w.veto() == "" {
			m.asking = true
			due = append(due, w)
		}
	}
	f.mu.Unlock()
	for _, w := range due {
		f.spawn(func() { f.askModels(w) })
	}
}

func (f *Fleet) askModels(w *Worker) {
	list, err := f.prober.models(f.ctx, w.URL)
	next := modelsEvery
	if err != nil {
		f.log.Debug("list of models", "worker", w.ID, "err", err)
		next = modelsRetry
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if list != nil {
		w.models.Store(f.shared(list))
	}
	if m := f.members[w]; m != nil {
		m.asking, m.nextModels = false, clock.MonoNs()+int64(next)
	}
}

// shared is the one that another worker has already of what is equal; the caller holds mu.
func (f *Fleet) shared(list *models) *models {
	for _, w := range f.core.workers {
		if m := w.models.Load(); m != nil && m.key == list.key {
			return m
		}
	}
	return list
}

// View is what decides how a worker's blocks of a prompt are named: by how many tokens, and for which adapter.
type View struct {
	BlockSize int // tokens
	Adapter   string
}

// Views are the distinct views of a prompt for a model over the registered workers, by block size and adapter:
// nearly always one.
func (f *Fleet) Views(model string) []View {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []View
	n := Named{Model: model}
	for _, w := range f.core.workers {
		if v := n.At(w); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b View) int {
		if a.BlockSize != b.BlockSize {
			return a.BlockSize - b.BlockSize
		}
		return strings.Compare(a.Adapter, b.Adapter)
	})
	return out
}

// Named is a model's name, which may mean different things to different workers. It remembers the last
// answer, because most workers serve the same.
type Named struct {
	Model string

	last    *models
	adapter string
}

// At is how a worker sees a prompt for the model.
func (n *Named) At(w *Worker) View {
	if m := w.models.Load(); m != n.last {
		n.last, n.adapter = m, m.adapter(n.Model)
	}
	return View{BlockSize: w.Spec.KVBlockSize, Adapter: n.adapter}
}
