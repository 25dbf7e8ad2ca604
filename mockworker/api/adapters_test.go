package api

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Adapters can be loaded up to a bound, which the answer tells, and again once one is unloaded.
func TestAdaptersAreBounded(t *testing.T) {
	srv := testServer(t, 1, func(o *Options) {
		o.RuntimeAdapters = true
		for i := range maxAdapters {
			o.Adapters = append(o.Adapters, Adapter{Name: fmt.Sprint("a", i), Path: "/x"})
		}
	})
	post := func(path, body string) (int, string) {
		res, err := http.Post(srv.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	const one = `{"lora_name": "more", "lora_path": "/y"}`
	if status, text := post("/v1/load_lora_adapter", one); status != 400 || !strings.Contains(text, "1024 lora adapters are loaded") {
		t.Errorf("one too many: %d %s", status, text)
	}
	if status, text := post("/v1/unload_lora_adapter", `{"lora_name": "a7"}`); status != 200 {
		t.Errorf("unloading: %d %s", status, text)
	}
	if status, text := post("/v1/load_lora_adapter", one); status != 200 {
		t.Errorf("once there is room: %d %s", status, text)
	}
}
