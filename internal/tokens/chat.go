package tokens

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"fleetdrill/internal/badjson"
)

// The stand-in chat template frames a message as STX role LF content ETX LF and opens the answer with
// STX "assistant" LF. Control bytes never start a word token, so the content of a message keeps its
// own ids, and a conversation's ids stay a prefix of the same conversation one turn later, as with a
// real template: that is what makes multi-turn chats hit a cache.
const (
	messageStart = "\x02"
	messageEnd   = "\x03\n"
	answerRole   = "assistant"
)

// ChatMessage is one message of a chat request. In JSON its content is a string, null (empty), or a
// list of parts of type "text", which are joined by a line feed; any other part is an error, since the
// stand-in template has no tokens for it.
type ChatMessage struct {
	Role    string
	Content string
}

// EncodeChat is the prompt ids of a chat request: every message through the stand-in template, then the
// opening of the assistant's answer. Engine and gateway must use this one function, or the gateway
// predicts other blocks than the engine caches.
func EncodeChat(messages []ChatMessage) []uint32 {
	size := len(messageStart) + len(answerRole) + 1
	for _, m := range messages {
		size += len(messageStart) + len(m.Role) + 1 + len(m.Content) + len(messageEnd)
	}
	text := make([]byte, 0, size)
	for _, m := range messages {
		text = append(append(text, messageStart...), m.Role...)
		text = append(append(text, '\n'), m.Content...)
		text = append(text, messageEnd...)
	}
	text = append(append(append(text, messageStart...), answerRole...), '\n')
	return Encode(string(text))
}

// UnmarshalJSON reads an OpenAI chat message; keys other than role and content are ignored.
func (m *ChatMessage) UnmarshalJSON(b []byte) error {
	var raw struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return fmt.Errorf("reading a chat message: %w", err)
	}
	content, err := contentText(raw.Content)
	if err != nil {
		return fmt.Errorf("reading the content of a %q message: %w", raw.Role, err)
	}
	m.Role, m.Content = raw.Role, content
	return nil
}

// contentText flattens the content of a message.
func contentText(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	if raw[0] == '"' {
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err
	}
	return joinParts(raw)
}

// joinParts reads part by part, so that a body full of them costs their text and no more.
func joinParts(raw json.RawMessage) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if first, err := dec.Token(); err != nil || first != json.Delim('[') {
		var list []json.RawMessage
		return "", fmt.Errorf("want a string or a list of parts: %w", badjson.Error(json.Unmarshal(raw, &list)))
	}
	var text strings.Builder
	for i := 0; dec.More(); i++ {
		var part struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if err := dec.Decode(&part); err != nil {
			return "", fmt.Errorf("part %d: %w", i, badjson.Error(err))
		}
		if part.Type != "text" {
			return "", fmt.Errorf("part %d has type %q, only text is supported", i, part.Type)
		}
		if i > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(part.Text)
	}
	return text.String(), nil
}

// Conversation is the messages of a chat request.
type Conversation []ChatMessage

// MaxMessages bounds a conversation. A message is at least four tokens, so that more would be 256k of nothing
// but frames.
const MaxMessages = 1 << 16

// UnmarshalJSON reads message by message, so that a body full of empty ones costs no more than those it may
// have; null is none.
func (c *Conversation) UnmarshalJSON(b []byte) error {
	*c = nil // the key may stand there twice: the last one counts
	if string(b) == "null" {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if first, err := dec.Token(); err != nil || first != json.Delim('[') {
		var list []json.RawMessage
		return json.Unmarshal(b, &list)
	}
	for *c = (Conversation{}); dec.More(); {
		if len(*c) == MaxMessages {
			return fmt.Errorf("a conversation of more than %d messages: one request takes at most %d", MaxMessages, MaxMessages)
		}
		var m ChatMessage
		if err := dec.Decode(&m); err != nil {
			return err
		}
		*c = append(*c, m)
	}
	return nil
}
