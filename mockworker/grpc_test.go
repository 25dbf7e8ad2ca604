package mockworker

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"fleetdrill/internal/protos/smgcommon"
	"fleetdrill/internal/protos/vllmengine"
	"fleetdrill/internal/tokens"
	"fleetdrill/mockworker/wire"
)

func withGRPC(c *Config) { c.GRPCPort = 0 }

// engineClient is a client of the first worker's gRPC port, with a context that bounds a test.
type engineClient struct {
	vllmengine.VllmEngineClient
	conn *grpc.ClientConn
	ctx  context.Context
	t    testing.TB
}

func (f *fleet) grpc() *engineClient {
	f.t.Helper()
	conn, err := grpc.NewClient(f.worker().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	f.t.Cleanup(func() {
		cancel()
		conn.Close()
	})
	return &engineClient{vllmengine.NewVllmEngineClient(conn), conn, ctx, f.t}
}

func tokenized(ids []uint32) *vllmengine.GenerateRequest {
	return &vllmengine.GenerateRequest{Input: &vllmengine.GenerateRequest_Tokenized{Tokenized: &vllmengine.TokenizedInput{InputIds: ids}}}
}

// asks is a request for some output tokens.
func asks(id string, ids []uint32, maxTokens uint32, stream bool) *vllmengine.GenerateRequest {
	r := tokenized(ids)
	r.RequestId, r.Stream = id, stream
	r.SamplingParams = &vllmengine.SamplingParams{MaxTokens: &maxTokens}
	return r
}

// answered is what Generate said, by choice.
type answered struct {
	ids     map[uint32][]uint32 // of chunks
	chunks  []*vllmengine.GenerateStreamChunk
	endings []*vllmengine.GenerateComplete
}

func (c *engineClient) generate(r *vllmengine.GenerateRequest) (answered, error) {
	a := answered{ids: map[uint32][]uint32{}}
	st, err := c.Generate(c.ctx, r)
	if err != nil {
		return a, err
	}
	for {
		m, err := st.Recv()
		if err == io.EOF {
			return a, nil
		}
		if err != nil {
			return a, err
		}
		if chunk := m.GetChunk(); chunk != nil {
			a.chunks = append(a.chunks, chunk)
			a.ids[chunk.Index] = append(a.ids[chunk.Index], chunk.TokenIds...)
			if int(chunk.CompletionTokens) != len(chunk.TokenIds) {
				c.t.Errorf("a chunk counts %d tokens and has %d", chunk.CompletionTokens, len(chunk.TokenIds))
			}
		}
		if end := m.GetComplete(); end != nil {
			a.endings = append(a.endings, end)
		}
	}
}

func (c *engineClient) mustGenerate(r *vllmengine.GenerateRequest) answered {
	c.t.Helper()
	a, err := c.generate(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

func TestGRPCGenerate(t *testing.T) {
	f := start(t, withGRPC)
	c := f.grpc()
	whole := c.mustGenerate(asks("a", prompt(1, 40), 12, false))
	if len(whole.chunks) != 0 || len(whole.endings) != 1 {
		t.Fatalf("not streamed: %d chunks, %d endings", len(whole.chunks), len(whole.endings))
	}
	end := whole.endings[0]
	if len(end.OutputIds) != 12 || end.FinishReason != "length" || end.PromptTokens != 40 || end.CompletionTokens != 12 || end.CachedTokens != 0 {
		t.Errorf("ending %v", end)
	}
	streamed := c.mustGenerate(asks("a", prompt(1, 40), 12, true))
	if diff := cmp.Diff(end.OutputIds, streamed.ids[0]); diff != "" {
		t.Errorf("the same request streamed (-whole +streamed):\n%s", diff)
	}
	last := streamed.chunks[len(streamed.chunks)-1]
	if e := streamed.endings[0]; e.CachedTokens != 32 || last.CachedTokens != 32 || last.PromptTokens != 40 || e.FinishReason != "length" ||
		!cmp.Equal(e.OutputIds, last.TokenIds) || int(e.CompletionTokens) != len(last.TokenIds) {
		t.Errorf("ending %v behind chunk %v", e, last)
	}
}

func TestGRPCGenerateDefaultsAndChoices(t *testing.T) {
	f := start(t, func(c *Config) { withGRPC(c); c.ChatMaxTokens, c.DataParallelSize, c.Wire = 7, 2, "vllm-0.25" })
	c := f.grpc()
	text := &vllmengine.GenerateRequest{Input: &vllmengine.GenerateRequest_Text{Text: "hello, world"}}
	if e := c.mustGenerate(text).endings[0]; int(e.PromptTokens) != len(tokens.Encode("hello, world")) || len(e.OutputIds) != 7 {
		t.Errorf("text without a maximum: %v", e)
	}
	r := asks("many", prompt(2, 20), 5, true)
	r.SamplingParams.N, r.DataParallelRank = 3, proto.Int32(1)
	a := c.mustGenerate(r)
	if len(a.endings) != 3 || len(a.ids[0]) != 5 || len(a.ids[2]) != 5 || cmp.Equal(a.ids[0], a.ids[1]) {
		t.Errorf("three choices: %v, %d endings", a.ids, len(a.endings))
	}
	for _, q := range f.truthRequests() {
		if strings.HasSuffix(q.ID, "many") && q.Rank != 1 {
			t.Errorf("request %+v, want it on rank 1", q)
		}
	}
	r = asks("cut", prompt(3, 50), 1, false)
	r.SamplingParams.TruncatePromptTokens = proto.Int32(20)
	if e := c.mustGenerate(r).endings[0]; e.PromptTokens != 20 {
		t.Errorf("truncated to 20: %v", e)
	}
}

// Every field that has no effect is taken: sampling, constraints, what is only another engine's or connector's.
func TestGRPCFieldsWithoutEffect(t *testing.T) {
	f := start(t, withGRPC)
	c := f.grpc()
	plain := c.mustGenerate(asks("a", prompt(1, 20), 5, false)).endings[0].OutputIds
	for name, change := range map[string]func(*vllmengine.GenerateRequest){
		"sampling": func(r *vllmengine.GenerateRequest) {
			p := r.SamplingParams
			p.Temperature, p.TopP, p.TopK, p.MinP, p.Seed = proto.Float32(0.7), 0.9, 50, 0.1, proto.Int32(3)
			p.FrequencyPenalty, p.PresencePenalty, p.RepetitionPenalty = 1, -1, 1.1
			p.SkipSpecialTokens, p.SpacesBetweenSpecialTokens, p.IgnoreEos, p.MinTokens = true, true, true, 5
			p.LogitBias = map[int32]float32{300: 1}
		},
		"schema": func(r *vllmengine.GenerateRequest) {
			r.SamplingParams.Constraint = &vllmengine.SamplingParams_JsonSchema{JsonSchema: "{}"}
		},
		"regex": func(r *vllmengine.GenerateRequest) {
			r.SamplingParams.Constraint = &vllmengine.SamplingParams_Regex{Regex: "a+"}
		},
		"grammar": func(r *vllmengine.GenerateRequest) {
			r.SamplingParams.Constraint = &vllmengine.SamplingParams_Grammar{Grammar: "root ::= x"}
		},
		"object": func(r *vllmengine.GenerateRequest) {
			r.SamplingParams.Constraint = &vllmengine.SamplingParams_JsonObject{JsonObject: true}
		},
		"choice": func(r *vllmengine.GenerateRequest) {
			r.SamplingParams.Constraint = &vllmengine.SamplingParams_Choice{Choice: &vllmengine.ChoiceConstraint{Choices: []string{"a"}}}
		},
		"transfer": func(r *vllmengine.GenerateRequest) {
			r.KvTransferParamsJson = proto.String(`{"do_remote_decode":false}`)
		},
		"original text": func(r *vllmengine.GenerateRequest) { r.GetTokenized().OriginalText = "what it was" },
	} {
		r := asks("a", prompt(1, 20), 5, false)
		change(r)
		a, err := c.generate(r)
		if err != nil || len(a.endings) != 1 || !cmp.Equal(a.endings[0].OutputIds, plain) {
			t.Errorf("%s: %v, %v, want tokens %v", name, a.endings, err, plain)
		}
	}
}

func (f *fleet) truthRequests() []truthRequest {
	return jsonLines[truthRequest](f, "/admin/truth/requests", nil)
}

// truthRequest is what of the request log is looked at.
type truthRequest struct {
	ID      string `json:"id"`
	Rank    int    `json:"rank"`
	Outcome string `json:"outcome"`
}

func TestGRPCRefusals(t *testing.T) {
	f := start(t, func(c *Config) { withGRPC(c); c.MaxModelLen, c.NumGPUBlocksOverride = 1000, 30; c.KVEventsConfig = "" })
	c := f.grpc()
	with := func(r *vllmengine.GenerateRequest, change func(*vllmengine.GenerateRequest)) *vllmengine.GenerateRequest {
		change(r)
		return r
	}
	ok := func() *vllmengine.GenerateRequest { return asks("", prompt(1, 20), 5, false) }
	sampling := func(change func(*vllmengine.SamplingParams)) *vllmengine.GenerateRequest {
		r := ok()
		change(r.SamplingParams)
		return r
	}
	for name, x := range map[string]struct {
		r    *vllmengine.GenerateRequest
		want string
	}{
		"no input":        {&vllmengine.GenerateRequest{}, "no input"},
		"empty ids":       {tokenized(nil), "prompt cannot be empty"},
		"empty text":      {&vllmengine.GenerateRequest{Input: &vllmengine.GenerateRequest_Text{}}, "prompt cannot be empty"},
		"vocabulary":      {tokenized([]uint32{1, tokens.Vocab}), "Token id 151936 is out of vocabulary"},
		"too long":        {tokenized(prompt(1, 1000)), "longer than the maximum model length of 1000"},
		"output too long": {asks("", prompt(1, 900), 101, false), "max_tokens is too large: 101"},
		"no output":       {asks("", prompt(1, 20), 0, false), "max_tokens must be at least 1, got 0"},
		"never fits":      {asks("", prompt(1, 400), 100, true), "need 32 KV blocks; the engine has 29"},
		"rank":            {with(ok(), func(r *vllmengine.GenerateRequest) { r.DataParallelRank = proto.Int32(1) }), "data_parallel_rank 1 is out of range [0, 1)"},
		"negative rank":   {with(ok(), func(r *vllmengine.GenerateRequest) { r.DataParallelRank = proto.Int32(-1) }), "data_parallel_rank -1"},
		"id":              {with(ok(), func(r *vllmengine.GenerateRequest) { r.RequestId = strings.Repeat("x", 257) }), "request_id is 257 bytes long"},
		"n":               {with(ok(), func(r *vllmengine.GenerateRequest) { r.SamplingParams.N = 1 << 30 }), "n must be at most 128"},
		"min_tokens":      {with(ok(), func(r *vllmengine.GenerateRequest) { r.SamplingParams.MinTokens = 6 }), "min_tokens must be less than or equal to max_tokens=5"},
		"truncation":      {with(ok(), func(r *vllmengine.GenerateRequest) { r.SamplingParams.TruncatePromptTokens = proto.Int32(0) }), "truncate_prompt_tokens"},
		"presence":        {sampling(func(p *vllmengine.SamplingParams) { p.PresencePenalty = 3 }), "presence_penalty must be in [-2, 2], got 3.0."},
		"frequency":       {sampling(func(p *vllmengine.SamplingParams) { p.FrequencyPenalty = -2.5 }), "frequency_penalty must be in [-2, 2], got -2.5."},
		"repetition":      {sampling(func(p *vllmengine.SamplingParams) { p.RepetitionPenalty = -1 }), "repetition_penalty must be greater than zero, got -1.0."},
		"temperature":     {sampling(func(p *vllmengine.SamplingParams) { p.Temperature = proto.Float32(-1) }), "temperature must be non-negative, got -1.0."},
		"no temperature":  {sampling(func(p *vllmengine.SamplingParams) { p.Temperature = proto.Float32(float32(math.NaN())) }), "temperature must be non-negative, got NaN."},
		"top_p":           {sampling(func(p *vllmengine.SamplingParams) { p.TopP = 1.5 }), "top_p must be in (0, 1], got 1.5."},
		"min_p":           {sampling(func(p *vllmengine.SamplingParams) { p.MinP = 2 }), "min_p must be in [0, 1], got 2.0."},
		"greedy":          {sampling(func(p *vllmengine.SamplingParams) { p.Temperature, p.N = proto.Float32(0), 2 }), "n must be 1 when using greedy sampling, got 2."},
		"stop":            {sampling(func(p *vllmengine.SamplingParams) { p.Stop = []string{"a", ""} }), "stop cannot contain an empty string."},
		"stop id":         {sampling(func(p *vllmengine.SamplingParams) { p.StopTokenIds = []uint32{tokens.Vocab} }), "token_id(s) [151936] in stop_token_ids"},
		"bias":            {sampling(func(p *vllmengine.SamplingParams) { p.LogitBias = map[int32]float32{-1: 1} }), "token_id(s) [-1] in logit_bias"},
		"logprobs":        {sampling(func(p *vllmengine.SamplingParams) { p.Logprobs = proto.Int32(21) }), "Requested sample logprobs of 21"},
		"all logprobs":    {sampling(func(p *vllmengine.SamplingParams) { p.PromptLogprobs = proto.Int32(-1) }), "Requested prompt logprobs of 151936"},
		"no logprobs":     {sampling(func(p *vllmengine.SamplingParams) { p.Logprobs = proto.Int32(-2) }), "logprobs must be non-negative or -1, got -2."},
	} {
		_, err := c.generate(x.r)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want InvalidArgument and %q", name, err, x.want)
		}
	}
	if _, err := c.Embed(c.ctx, &vllmengine.EmbedRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("embed: %v", err)
	}
	if st, err := c.GetTokenizer(c.ctx, &smgcommon.GetTokenizerRequest{}); err != nil {
		t.Error(err)
	} else if _, err = st.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("tokenizer: %v", err)
	}
	if _, err := c.subscribe(0).Recv(); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "--kv-events-config") {
		t.Errorf("events that are off: %v", err)
	}
	if row := f.truth().Ranks[0]; row.Running+row.Waiting != 0 {
		t.Errorf("refused requests stay: %+v", row)
	}
}

func TestGRPCInfo(t *testing.T) {
	f := start(t, func(c *Config) { withGRPC(c); c.DataParallelSize, c.LoadsLike, c.MaxNumSeqs = 2, "vllm", 9 })
	c := f.grpc()
	c.mustGenerate(asks("a", prompt(1, 40), 3, false))
	h, err := c.HealthCheck(c.ctx, &vllmengine.HealthCheckRequest{})
	if err != nil || !h.Healthy || h.Message != "Health" {
		t.Errorf("health %v, %v", h, err)
	}
	std, err := grpc_health_v1.NewHealthClient(c.conn).Check(c.ctx, &grpc_health_v1.HealthCheckRequest{Service: "vllm.grpc.engine.VllmEngine"})
	if err != nil || std.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("standard health %v, %v", std, err)
	}
	m, err := c.GetModelInfo(c.ctx, &vllmengine.GetModelInfoRequest{})
	if err != nil || m.ServedModelName != "mock-8b" || m.VocabSize != tokens.Vocab || m.MaxContextLength != 131_072 || !m.IsGeneration {
		t.Errorf("model %v, %v", m, err)
	}
	s, err := c.GetServerInfo(c.ctx, &vllmengine.GetServerInfoRequest{})
	if err != nil || s.ServerType != "vllm-grpc" || s.DataParallelSize != 2 || s.ActiveRequests != 0 || s.LastReceiveTimestamp == 0 || s.UptimeSeconds <= 0 {
		t.Errorf("server %v, %v", s, err)
	}
	l, err := c.GetLoads(c.ctx, &vllmengine.GetLoadsRequest{})
	if err != nil || l.DpRankCount != 2 || len(l.Loads) != 2 || l.Version != "0.25.0" {
		t.Fatalf("loads %v, %v", l, err)
	}
	if _, err := time.Parse(time.RFC3339Nano, l.Timestamp); err != nil {
		t.Error(err)
	}
	for i, row := range l.Loads {
		if int(row.DpRank) != i || row.MaxRunningRequests != 9 || row.MaxTotalNumTokens == 0 || row.CacheHitRate != 0 || row.GenThroughput != 0 {
			t.Errorf("load of rank %d: %v", i, row)
		}
	}
	if one, err := c.GetLoads(c.ctx, &vllmengine.GetLoadsRequest{DpRank: proto.Int32(1)}); err != nil || len(one.Loads) != 1 || one.Loads[0].DpRank != 1 {
		t.Errorf("loads of rank 1: %v, %v", one, err)
	}
	if _, err := c.GetLoads(c.ctx, &vllmengine.GetLoadsRequest{DpRank: proto.Int32(2)}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("loads of rank 2: %v", err)
	}
}

func TestGRPCFullLoads(t *testing.T) {
	f := start(t, withGRPC)
	c := f.grpc()
	for range 3 {
		c.mustGenerate(asks("a", prompt(1, 64), 5, false))
	}
	l, err := c.GetLoads(c.ctx, &vllmengine.GetLoadsRequest{})
	if err != nil || l.Loads[0].CacheHitRate <= 0 || l.Loads[0].GenThroughput <= 0 || l.Loads[0].NumRunningReqs != 0 {
		t.Errorf("%v, %v", l, err)
	}
}

// openCall sends a request that would go on for minutes and reads its first token.
func (c *engineClient) openCall(ctx context.Context, id string) grpc.ServerStreamingClient[vllmengine.GenerateResponse] {
	c.t.Helper()
	st, err := c.Generate(ctx, asks(id, prompt(9, 20), 100_000, true))
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := st.Recv(); err != nil {
		c.t.Fatal(err)
	}
	return st
}

// Abort ends every request of the id, at once, and tells their callers.
func TestGRPCAbort(t *testing.T) {
	f := start(t, withGRPC)
	c := f.grpc()
	calls := []grpc.ServerStreamingClient[vllmengine.GenerateResponse]{c.openCall(c.ctx, "x"), c.openCall(c.ctx, "x"), c.openCall(c.ctx, "y")}
	if _, err := c.Abort(c.ctx, &vllmengine.AbortRequest{RequestIds: []string{"x", "nobody"}}); err != nil {
		t.Fatal(err)
	}
	for _, st := range calls[:2] {
		var last *vllmengine.GenerateResponse
		for {
			m, err := st.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			last = m
		}
		if last.GetComplete().GetFinishReason() != "abort" {
			t.Errorf("last message %v", last)
		}
	}
	if row := f.truth().Ranks[0]; row.Running != 1 {
		t.Errorf("%d run after the abort of two of three", row.Running)
	}
}

// A client that goes away frees its place in the engine.
func TestGRPCClientGone(t *testing.T) {
	f := start(t, withGRPC)
	c := f.grpc()
	ctx, cancel := context.WithCancel(c.ctx)
	c.openCall(ctx, "x")
	whole := make(chan error, 1)
	go func() {
		st, err := c.Generate(ctx, asks("y", prompt(8, 20), 100_000, false))
		if err == nil {
			_, err = st.Recv()
		}
		whole <- err
	}()
	f.eventually("both to run", func() bool { return f.truth().Ranks[0].Running == 2 })
	cancel()
	if err := <-whole; status.Code(err) != codes.Canceled {
		t.Errorf("the waiting call: %v", err)
	}
	f.eventually("both to leave", func() bool { return f.truth().Ranks[0].Running == 0 })
	for _, q := range f.truthRequests() {
		if q.Outcome != "abort" {
			t.Errorf("request %+v", q)
		}
	}
}

// subscription is an open event stream.
type subscription struct {
	grpc.ServerStreamingClient[smgcommon.KvEventBatch]
	t testing.TB
}

// subscribe returns when the subscription stands or is refused.
func (c *engineClient) subscribe(start uint64) subscription {
	c.t.Helper()
	st, err := c.SubscribeKvEvents(c.ctx, &smgcommon.SubscribeKvEventsRequest{StartSequenceNumber: start})
	if err != nil {
		c.t.Fatal(err)
	}
	_, _ = st.Header() // a refusal shows in Recv
	return subscription{st, c.t}
}

func (s subscription) next() *smgcommon.KvEventBatch {
	s.t.Helper()
	b, err := s.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// holdings counts the copies of every block that a subscriber holds on the device.
type holdings map[int64]int

func (h holdings) apply(b *smgcommon.KvEventBatch) {
	for _, e := range b.Events {
		switch d := e.Data.(type) {
		case *smgcommon.KvCacheEvent_Stored:
			for _, block := range d.Stored.Blocks {
				h[block.BlockHash]++
			}
		case *smgcommon.KvCacheEvent_Removed:
			for _, hash := range d.Removed.BlockHashes {
				if h[hash]--; h[hash] <= 0 {
					delete(h, hash)
				}
			}
		case *smgcommon.KvCacheEvent_Cleared:
			clear(h)
		}
	}
}

func (h holdings) digest() (sum uint64) {
	for hash := range h {
		sum += tokens.DigestTerm(uint64(hash))
	}
	return sum
}

// What gRPC subscribers fold is what the worker announced, whenever they joined, on every wire.
func TestGRPCEventsAreTheAnnouncedTruth(t *testing.T) {
	for _, name := range wire.Names() {
		t.Run(name, func(t *testing.T) {
			f := start(t, func(c *Config) { withGRPC(c); smallPool(c); c.Wire = name })
			c := f.grpc()
			early, held := c.subscribe(0), holdings{}
			f.load(40)
			late, lateHeld := c.subscribe(0), holdings{}
			f.load(20)
			row := f.truth().Ranks[0]
			for seq := uint64(1); seq <= uint64(row.NextSeq); seq++ {
				a, b := early.next(), late.next()
				if a.SequenceNumber != seq || b.SequenceNumber != seq || a.DpRank == nil || *a.DpRank != 0 {
					t.Fatalf("batch %d: early %d, late %d", seq, a.SequenceNumber, b.SequenceNumber)
				}
				held.apply(a)
				lateHeld.apply(b)
			}
			if len(held) != row.AnnouncedBlocks || held.digest() != uint64(row.Digest) || lateHeld.digest() != held.digest() {
				t.Errorf("held %d blocks %x, late %x; announced %d %x", len(held), held.digest(), lateHeld.digest(), row.AnnouncedBlocks, uint64(row.Digest))
			}
			if row.AnnouncedBlocks == 0 || row.NextSeq < 20 {
				t.Errorf("too little happened: %+v", row)
			}
		})
	}
}

// A cursor resumes behind its batch while the history reaches back, and is refused otherwise.
func TestGRPCResume(t *testing.T) {
	f := start(t, func(c *Config) {
		withGRPC(c)
		c.KVEventsConfig = `{"enable_kv_cache_events": true, "endpoint": "tcp://*:0", "buffer_steps": 10}`
	})
	c := f.grpc()
	// Nothing was sent: 0 waits for the first batch, everything else is ahead.
	fresh := c.subscribe(0)
	refused := func(start uint64, want string) {
		t.Helper()
		if _, err := c.subscribe(start).Recv(); status.Code(err) != codes.OutOfRange || !strings.Contains(err.Error(), want) {
			t.Errorf("from %d: %v, want OutOfRange and %q", start, err, want)
		}
	}
	refused(1, "ahead of the newest batch, 0")
	const n = 15 // one batch each
	for i := range n {
		f.complete(prompt(100+i, 32), 1, "")
	}
	for seq := uint64(1); seq <= n; seq++ {
		if b := fresh.next(); b.SequenceNumber != seq || len(b.Events) == 0 {
			t.Fatalf("batch %d: %v", seq, b)
		}
	}
	refused(n+1, "ahead of the newest batch, 15")
	refused(4, "older than the history, which begins at 6")
	for _, x := range []struct{ start, first uint64 }{{5, 6}, {12, 13}, {n, n + 1}, {0, n + 2}} {
		st := c.subscribe(x.start)
		if x.first > n {
			f.complete(prompt(200+int(x.start), 32), 1, "")
		}
		if b := st.next(); b.SequenceNumber != x.first {
			t.Errorf("from %d: first batch %d, want %d", x.start, b.SequenceNumber, x.first)
		}
	}
}

func TestGRPCRanks(t *testing.T) {
	f := start(t, func(c *Config) { withGRPC(c); c.DataParallelSize = 2; c.Wire = "vllm-0.28" })
	c := f.grpc()
	if _, err := c.subscribe(3).Recv(); status.Code(err) != codes.OutOfRange || !strings.Contains(err.Error(), "2 ranks") {
		t.Errorf("a cursor over two ranks: %v", err)
	}
	st := c.subscribe(0)
	for i, rank := range []int32{1, 0, 1} {
		r := asks("a", prompt(i, 32), 1, false)
		r.DataParallelRank = &rank
		c.mustGenerate(r)
	}
	seen := map[string]bool{}
	for range 3 {
		b := st.next()
		seen[fmt.Sprintf("rank %d batch %d", b.GetDpRank(), b.SequenceNumber)] = true
	}
	if !seen["rank 1 batch 1"] || !seen["rank 0 batch 1"] || !seen["rank 1 batch 2"] {
		t.Errorf("saw %v", seen)
	}
}

// Faults of the publisher are faults of this stream, too.
func TestGRPCFeelsPublisherFaults(t *testing.T) {
	f := start(t, withGRPC)
	c := f.grpc()
	st := c.subscribe(0)
	store := func(i int) { f.complete(prompt(i, 32), 1, "") }
	store(1)
	if b := st.next(); b.SequenceNumber != 1 {
		t.Fatalf("first batch %d", b.SequenceNumber)
	}
	f.arm(`{"kind": "drop_batches", "count": 2}`)
	store(2)
	store(3)
	store(4)
	if b := st.next(); b.SequenceNumber != 4 {
		t.Errorf("behind two that were dropped: batch %d", b.SequenceNumber)
	}
	resumed := c.subscribe(1)
	if b := resumed.next(); b.SequenceNumber != 2 {
		t.Errorf("the history has batch %d first", b.SequenceNumber)
	}
	f.arm(`{"kind": "restart_publisher", "cache": "keep", "socket": "keep"}`)
	f.eventually("the restart", func() bool { return f.truth().Ranks[0].NextSeq == 0 })
	store(5)
	if b := st.next(); b.SequenceNumber != 1 {
		t.Errorf("behind a restart: batch %d", b.SequenceNumber)
	}
	f.arm(`{"kind": "restart_publisher", "cache": "keep", "socket": "rebind"}`)
	if _, err := st.Recv(); status.Code(err) != codes.DataLoss {
		t.Errorf("behind a restart with new sockets: %v", err)
	}
}

// A hanging engine answers questions about itself, and a call that it does not serve can be cancelled.
func TestGRPCOfAWedgedEngine(t *testing.T) {
	f := start(t, withGRPC)
	c := f.grpc()
	open := c.openCall(c.ctx, "open")
	id := f.arm(`{"kind": "wedge"}`)
	f.awaitFault(id, "acting")
	ctx, cancel := context.WithTimeout(c.ctx, 50*time.Millisecond)
	defer cancel()
	st, err := c.Generate(ctx, asks("late", prompt(1, 20), 1, false))
	if err == nil {
		_, err = st.Recv()
	}
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a call to an engine that hangs: %v", err)
	}
	if h, err := c.HealthCheck(c.ctx, &vllmengine.HealthCheckRequest{}); err != nil || !h.Healthy {
		t.Errorf("health %v, %v", h, err)
	}
	if l, err := c.GetLoads(c.ctx, &vllmengine.GetLoadsRequest{}); err != nil || l.Loads[0].NumRunningReqs != 1 {
		t.Errorf("loads %v, %v", l, err)
	}
	f.heal(id)
	for range 3 {
		if _, err := open.Recv(); err != nil {
			t.Fatal(err)
		}
	}
}

// A worker that ends tells subscribers at once and lets requests go on for the grace.
func TestGRPCShutdown(t *testing.T) {
	f := start(t, func(c *Config) { withGRPC(c); c.ShutdownGrace = patience })
	c := f.grpc()
	sub := c.subscribe(0)
	st, err := c.Generate(c.ctx, asks("a", prompt(1, 20), 200, true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); err != nil {
		t.Fatal(err)
	}
	f.cancel()
	for {
		if _, err := sub.Recv(); err != nil {
			if status.Code(err) != codes.Unavailable {
				t.Errorf("the subscription ends with %v", err)
			}
			break
		}
	}
	var last *vllmengine.GenerateResponse
	for {
		m, err := st.Recv()
		if err != nil {
			if err != io.EOF {
				t.Errorf("the request ends with %v", err)
			}
			break
		}
		last = m
	}
	if last.GetComplete().GetFinishReason() != "length" {
		t.Errorf("last message %v", last)
	}
}

func TestGRPCFlags(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"--grpc-port is 70000":                 func(c *Config) { c.GRPCPort = 70_000 },
		"--grpc-port is -2":                    func(c *Config) { c.GRPCPort = -2 },
		"--grpc-port 65535 leaves no room":     func(c *Config) { c.GRPCPort, c.Count = 65_535, 2 },
		"--loads-like is \"sglang\", must be ": func(c *Config) { c.LoadsLike = "sglang" },
	} {
		c := defaults()
		change(&c)
		if err := Validate(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What is no request costs its own connection or call and nothing else.
func TestGRPCHostileClients(t *testing.T) {
	f := start(t, func(c *Config) { withGRPC(c); c.MaxBodyBytes = 100_000 })
	c := f.grpc()
	for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xff", 50_000)} {
		conn, err := net.Dial("tcp", f.worker().GRPC)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.generate(tokenized(make([]uint32, 100_001))); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a request of more than 100,000 bytes: %v", err)
	}
	var none vllmengine.AbortResponse
	if err := c.conn.Invoke(c.ctx, "/vllm.grpc.engine.VllmEngine/Nothing", &vllmengine.AbortRequest{}, &none); status.Code(err) != codes.Unimplemented {
		t.Errorf("an unknown method: %v", err)
	}
	garbage := &vllmengine.AbortRequest{}
	garbage.ProtoReflect().SetUnknown([]byte("\x22\x05\xff\xff\xff\xff\xff")) // sampling parameters that are none
	if err := c.conn.Invoke(c.ctx, "/vllm.grpc.engine.VllmEngine/Generate", garbage, &none); status.Code(err) != codes.Internal {
		t.Errorf("bytes that are no request: %v", err)
	}
	many := &vllmengine.AbortRequest{RequestIds: make([]string, 20_000)}
	if _, err := c.Abort(c.ctx, many); err != nil {
		t.Errorf("an abort of many: %v", err)
	}
	if a := c.mustGenerate(asks("", prompt(1, 20), 3, false)); len(a.endings[0].OutputIds) != 3 {
		t.Errorf("afterwards: %v", a.endings)
	}
}

// What a fault makes of a batch's bytes or of its place shows in messages as far as they can tell it.
func TestGRPCOfSurprisingBatches(t *testing.T) {
	f := start(t, withGRPC)
	c := f.grpc()
	st := c.subscribe(0)
	next := 1000
	store := func() { f.complete(prompt(next, 32), 1, ""); next++ }
	for _, x := range []struct {
		fault  string
		want   []int64 // sequence numbers relative to the first of two batches
		events []int
	}{
		{`{"kind": "duplicate"}`, []int64{0, 0, 1}, []int{1, 1, 1}},
		{`{"kind": "duplicate", "of": "store"}`, []int64{0, 1}, []int{2, 1}},
		{`{"kind": "reorder"}`, []int64{1, 0}, []int{1, 1}},
		{`{"kind": "truncate"}`, []int64{0, 1}, []int{0, 1}},
		{`{"kind": "corrupt"}`, []int64{0, 1}, []int{0, 1}},
		{`{"kind": "corrupt", "field": "seq"}`, []int64{0, 1}, []int{1, 1}},
		{`{"kind": "unknown_event"}`, []int64{0, 1}, []int{1, 1}},
		{`{"kind": "unknown_field"}`, []int64{0, 1}, []int{1, 1}},
		{`{"kind": "unknown_field", "in": "batch"}`, []int64{0, 1}, []int{1, 1}},
		{`{"kind": "masked_store"}`, []int64{0, 1}, []int{0, 1}},
	} {
		first := f.truth().Ranks[0].NextSeq + 1
		f.arm(x.fault)
		store()
		store()
		for i := range x.want {
			if b := st.next(); int64(b.SequenceNumber)-first != x.want[i] || len(b.Events) != x.events[i] {
				t.Errorf("%s: message %d is number %+d with %d events, want %+d with %d", x.fault, i, int64(b.SequenceNumber)-first, len(b.Events), x.want[i], x.events[i])
			}
		}
	}
}
