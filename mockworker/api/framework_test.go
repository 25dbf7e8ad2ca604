package api

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A redirect keeps method, body and query, and goes to where the client thinks the server is.
func TestTrailingSlashRedirects(t *testing.T) {
	srv := testServer(t, 1, nil)
	once := *srv.Client()
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for path, want := range map[string]string{
		"/health/":           srv.URL + "/health",
		"/v1/completions/":   srv.URL + "/v1/completions",
		"/v1/models///?a=b":  srv.URL + "/v1/models?a=b",
		"/v1/model/":         "",
		"/metrics":           "",
		"/is_paused/?mode=x": srv.URL + "/is_paused?mode=x",
	} {
		resp, err := once.Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Location"); got != want || want != "" && resp.StatusCode != http.StatusTemporaryRedirect {
			t.Errorf("%s: %d to %q, want %q", path, resp.StatusCode, got, want)
		}
	}
	status, _, text := roundTrip(t, srv.Client(), post(t, srv, "/v1/completions/", `{"prompt":"a","max_tokens":1}`))
	if status != http.StatusOK {
		t.Errorf("a client that follows gets %d %s", status, text)
	}
}

// Browsers may ask from anywhere: the headers of a preflight and of an answer, for both engines.
func TestCORS(t *testing.T) {
	vllm, sglang := testServer(t, 1, func(o *Options) { o.APIKeys = []string{"k"} }), func() string { srv, _ := sglangServer(t, true, nil); return srv.URL }()
	ask := func(method, url string, header ...string) http.Header {
		req, err := http.NewRequest(method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		status, h, body := roundTrip(t, http.DefaultClient, req)
		if status != http.StatusOK {
			t.Errorf("%s %s: %d %s", method, url, status, body)
		}
		return h
	}
	defer http.DefaultClient.CloseIdleConnections()
	check := func(h http.Header, want map[string]string) {
		t.Helper()
		for k, v := range want {
			if got := h.Get(k); got != v {
				t.Errorf("%s is %q, want %q", k, got, v)
			}
		}
	}
	preflight := []string{"Origin", "http://page", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type"}
	check(ask("OPTIONS", vllm.URL+"/v1/chat/completions", preflight...), map[string]string{
		"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Methods": "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT",
		"Access-Control-Allow-Headers": "authorization,content-type", "Access-Control-Max-Age": "600", "Access-Control-Allow-Credentials": "",
	})
	check(ask("GET", vllm.URL+"/health", "Origin", "http://page"), map[string]string{"Access-Control-Allow-Origin": "*"})
	check(ask("GET", vllm.URL+"/health"), map[string]string{"Access-Control-Allow-Origin": ""})
	check(ask("OPTIONS", sglang+"/generate", preflight...), map[string]string{
		"Access-Control-Allow-Origin": "http://page", "Access-Control-Allow-Credentials": "true", "Vary": "Origin",
	})
	check(ask("GET", sglang+"/health", "Origin", "http://page"), map[string]string{
		"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Credentials": "true",
	})
}

// The scheme of a key is read in any case, and the key is not.
func TestKeySchemes(t *testing.T) {
	srv := testServer(t, 1, func(o *Options) { o.APIKeys = []string{"k"} })
	for given, want := range map[string]int{
		"Bearer k": 200, "bearer k": 200, "BEARER k": 200, "Bearer K": 401, "Bearer  k": 401, "Basic k": 401, "k": 401, "Bearer": 401, "": 401,
	} {
		req, err := http.NewRequest("GET", srv.URL+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", given)
		if status, _, text := roundTrip(t, srv.Client(), req); status != want {
			t.Errorf("Authorization %q: %d %s, want %d", given, status, text, want)
		}
	}
}

// Bodies that are no text are refused in the framework's words; an order mark is none of the body.
func TestBodiesThatAreNoText(t *testing.T) {
	srv := testServer(t, 1, nil)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(`{"prompt":"a","max_tokens":1}`))
	_ = z.Close()
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"gzip":          {packed.String(), 400},
		"invalid UTF-8": {"{\"prompt\":\"\xff\"}", 400},
		"order mark":    {"\xef\xbb\xbf" + `{"prompt":"a","max_tokens":1}`, 200},
		"deep":          {`{"x":` + strings.Repeat("[", 4000) + strings.Repeat("]", 4000) + `,"prompt":"a","max_tokens":1}`, 200},
	} {
		req := post(t, srv, "/v1/completions", c.body)
		req.Header.Set("Content-Encoding", map[bool]string{true: "gzip"}[name == "gzip"])
		status, _, text := roundTrip(t, srv.Client(), req)
		if status != c.want || status == 400 && text != `{"error":{"message":"There was an error parsing the body","type":"Bad Request","param":null,"code":400}}` {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}

// What HTTP itself has to offer: requests one behind the other, an old protocol, a body in chunks and one that
// waits to be asked for.
func TestWaysToSend(t *testing.T) {
	srv := testServer(t, 1, nil)
	at, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"prompt":"a","max_tokens":2}`
	const head = "Host: x\r\nContent-Type: application/json\r\n"
	for name, c := range map[string]struct {
		sent string
		want int // answers
	}{
		"pipelined":    {strings.Repeat("POST /v1/completions HTTP/1.1\r\n"+head+"Content-Length: 29\r\n\r\n"+body, 2) + "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 3},
		"HTTP/1.0":     {"POST /v1/completions HTTP/1.0\r\n" + head + "Content-Length: 29\r\n\r\n" + body, 1},
		"old, stream":  {"POST /v1/completions HTTP/1.0\r\n" + head + "Content-Length: 43\r\n\r\n" + `{"prompt":"a","max_tokens":2,"stream":true}`, 1},
		"chunked":      {"POST /v1/completions HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\n" + body[:5] + "\r\n18\r\n" + body[5:] + "\r\n0\r\n\r\n", 1},
		"100-continue": {"POST /v1/completions HTTP/1.1\r\n" + head + "Content-Length: 29\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n" + body, 1},
	} {
		conn, err := net.Dial("tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, c.sent)
		got, err := io.ReadAll(conn)
		conn.Close()
		if n := strings.Count(string(got), " 200 OK\r\n"); n != c.want || err != nil {
			t.Errorf("%s: %d answers of %d, %v:\n%s", name, n, c.want, err, got)
		}
		if strings.HasPrefix(name, "old") && !strings.Contains(string(got), "data: [DONE]\n\n") {
			t.Errorf("%s has no end:\n%s", name, got)
		}
	}
}
