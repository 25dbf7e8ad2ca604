package mockworker

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// The published Go client of OpenAI sees a server that it knows.
func TestOpenAIClient(t *testing.T) {
	f := start(t, func(c *Config) { c.APIKeys = []string{"sesame"} })
	ctx := context.Background()
	c := openai.NewClient(option.WithBaseURL(f.worker().HTTP+"/v1"), option.WithAPIKey("sesame"), option.WithHTTPClient(f.client), option.WithMaxRetries(0))

	models, err := c.Models.List(ctx)
	if err != nil || len(models.Data) != 1 || models.Data[0].ID != "mock-8b" || models.Data[0].OwnedBy != "vllm" {
		t.Fatalf("models %+v, %v", models, err)
	}
	talk := openai.ChatCompletionNewParams{
		Model: "mock-8b", MaxTokens: openai.Int(5), N: openai.Int(2),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("be short"), openai.UserMessage("hi")},
	}
	chat, err := c.Chat.Completions.New(ctx, talk)
	if err != nil || len(chat.Choices) != 2 || chat.Choices[1].FinishReason != "length" || len(strings.Fields(chat.Choices[1].Message.Content)) != 5 ||
		chat.Usage.CompletionTokens != 10 || chat.Usage.TotalTokens != chat.Usage.PromptTokens+10 {
		t.Errorf("chat %+v, %v", chat, err)
	}
	text := openai.CompletionNewParams{
		Model: "mock-8b", MaxTokens: openai.Int(4), Echo: openai.Bool(true),
		Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"one", "two"}},
	}
	completion, err := c.Completions.New(ctx, text)
	if err != nil || len(completion.Choices) != 2 || !strings.HasPrefix(completion.Choices[1].Text, "two ") || completion.Usage.CompletionTokens != 8 {
		t.Errorf("completion %+v, %v", completion, err)
	}

	talk.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	chats := c.Chat.Completions.NewStreaming(ctx, talk)
	var whole openai.ChatCompletionAccumulator
	for chats.Next() {
		whole.AddChunk(chats.Current())
	}
	if err := chats.Err(); err != nil || len(whole.Choices) != 2 || len(strings.Fields(whole.Choices[0].Message.Content)) != 5 || whole.Usage.CompletionTokens != 10 {
		t.Errorf("streamed chat %+v, %v", whole, err)
	}
	texts := c.Completions.NewStreaming(ctx, text)
	parts := map[int64]string{}
	for texts.Next() {
		for _, choice := range texts.Current().Choices {
			parts[choice.Index] += choice.Text
		}
	}
	if err := texts.Err(); err != nil || len(strings.Fields(parts[0])) != 5 || !strings.HasPrefix(parts[1], "two ") {
		t.Errorf("streamed completion %v, %v", parts, err)
	}

	talk.Model = "gpt-9"
	_, err = c.Chat.Completions.New(ctx, talk)
	if refused := (*openai.Error)(nil); !errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound || !strings.Contains(refused.Message, "`gpt-9` does not exist") {
		t.Errorf("unknown model: %v", err)
	}
	text.MaxTokens = openai.Int(-1)
	_, err = c.Completions.New(ctx, text)
	if refused := (*openai.Error)(nil); !errors.As(err, &refused) || refused.StatusCode != http.StatusBadRequest || refused.Param != "max_tokens" {
		t.Errorf("bad request: %v", err)
	}
	// The engine's 401 has no object in it, which this client cannot read; that it is refused is what counts.
	if _, err := c.Models.List(ctx, option.WithAPIKey("wrong")); err == nil {
		t.Error("a wrong key is served")
	}
	if status, body := f.api("GET", "/v1/models", "", "Authorization", "Bearer wrong"); status != http.StatusUnauthorized {
		t.Errorf("wrong key: %d %s", status, body)
	}
}
