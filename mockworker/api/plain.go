package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"fleetdrill/internal/tokens"
)

// alive answers /health and /ping: 200 with an empty body.
func alive(c *gin.Context) { c.Status(http.StatusOK) }

func (s *Server) version(c *gin.Context) {
	sendJSON(c, http.StatusOK, append(append([]byte(`{"version":`), quote(s.o.Version)...), '}'))
}

type modelList struct {
	Object string      `json:"object"`
	Data   []modelCard `json:"data"`
}

type modelCard struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Created     int64             `json:"created"`
	OwnedBy     string            `json:"owned_by"`
	Root        string            `json:"root"`
	Parent      *string           `json:"parent"`
	MaxModelLen *int              `json:"max_model_len"`
	Permission  []modelPermission `json:"permission"`
}

type modelPermission struct {
	ID                 string  `json:"id"`
	Object             string  `json:"object"`
	Created            int64   `json:"created"`
	AllowCreateEngine  bool    `json:"allow_create_engine"`
	AllowSampling      bool    `json:"allow_sampling"`
	AllowLogprobs      bool    `json:"allow_logprobs"`
	AllowSearchIndices bool    `json:"allow_search_indices"`
	AllowView          bool    `json:"allow_view"`
	AllowFineTuning    bool    `json:"allow_fine_tuning"`
	Organization       string  `json:"organization"`
	Group              *string `json:"group"`
	IsBlocking         bool    `json:"is_blocking"`
}

// models serves GET /v1/models: the base model and, as children of it, the adapters.
func (s *Server) models(c *gin.Context) {
	list := modelList{Object: "list", Data: []modelCard{s.card(s.o.Model, s.o.Model, 0)}}
	list.Data[0].MaxModelLen = &s.o.MaxModelLen
	for _, a := range s.adapters.all() {
		card := s.card(a.name, a.path, uint64(a.id))
		card.Parent = &s.o.Model
		list.Data = append(list.Data, card)
	}
	s.reply(c, list)
}

func (s *Server) card(id, root string, n uint64) modelCard {
	return modelCard{
		ID: id, Object: "model", Created: s.created, OwnedBy: "vllm", Root: root,
		Permission: []modelPermission{{
			ID: fmt.Sprintf("modelperm-%016x", s.permID+n), Object: "model_permission", Created: s.created,
			AllowSampling: true, AllowLogprobs: true, AllowView: true, Organization: "*",
		}},
	}
}

// reply sends v as JSON; every v here has a JSON form.
func (s *Server) reply(c *gin.Context, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		sendError(c, apiError{status: http.StatusInternalServerError, kind: "InternalServerError", message: err.Error()})
		return
	}
	sendJSON(c, http.StatusOK, b)
}

type tokenizeRequest struct {
	Model           string              `json:"model"`
	Prompt          *string             `json:"prompt"`
	Messages        tokens.Conversation `json:"messages"`
	ReturnTokenStrs bool                `json:"return_token_strs"`
}

type tokenizeReply struct {
	Count       int      `json:"count"`
	MaxModelLen int      `json:"max_model_len"`
	Tokens      []uint32 `json:"tokens"`
	TokenStrs   []string `json:"token_strs"`
}

func (s *Server) tokenize(c *gin.Context) {
	var q tokenizeRequest
	bad := s.decode(c, &q)
	if bad == nil {
		_, bad = s.resolve(q.Model)
	}
	if bad == nil && (q.Prompt == nil) == (q.Messages == nil) {
		bad = badRequest("prompt", "give either prompt or messages")
	}
	if bad != nil {
		sendError(c, *bad)
		return
	}
	r := tokenizeReply{MaxModelLen: s.o.MaxModelLen}
	if q.Prompt != nil {
		r.Tokens = tokens.Encode(*q.Prompt)
	} else {
		r.Tokens = tokens.EncodeChat(q.Messages)
	}
	r.Count = len(r.Tokens)
	if q.ReturnTokenStrs {
		for _, id := range r.Tokens {
			r.TokenStrs = append(r.TokenStrs, tokens.Decode([]uint32{id}))
		}
	}
	s.reply(c, r)
}

func (s *Server) detokenize(c *gin.Context) {
	var q struct {
		Model  string   `json:"model"`
		Tokens []uint32 `json:"tokens"`
	}
	bad := s.decode(c, &q)
	if bad == nil {
		_, bad = s.resolve(q.Model)
	}
	if bad == nil && q.Tokens == nil {
		bad = badRequest("tokens", "tokens is missing")
	}
	for _, id := range q.Tokens {
		if bad == nil && id >= tokens.Vocab {
			bad = badRequest("tokens", "token id %d is out of vocabulary, which has %d", id, tokens.Vocab)
		}
	}
	if bad != nil {
		sendError(c, *bad)
		return
	}
	s.reply(c, struct {
		Prompt string `json:"prompt"`
	}{tokens.Decode(q.Tokens)})
}
