package tokens

import (
	"encoding/json"
	"fmt"

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
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", fmt.Errorf("want a string or a list of parts: %w", badjson.Error(err))
	}
	text := ""
	for i, p := range parts {
		if p.Type != "text" {
			return "", fmt.Errorf("part %d has type %q, only text is supported", i, p.Type)
		}
		if i > 0 {
			text += "\n"
		}
		text += p.Text
	}
	return text, nil
}
