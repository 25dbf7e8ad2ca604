package pagetest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience bounds one browser's whole life. Four looks at a page take about a second; it only says when to
// give up.
const patience = time.Minute

// Browser is one headless Chromium with one tab.
type Browser struct {
	ctx     context.Context
	profile string // its folder, unique to it: every one of its processes names it

	mu       sync.Mutex // guards what the tab has reported since the last look began
	requests []string
	console  []string
}

// Start starts a browser that ends, with its whole process group, when the test does.
func Start(t testing.TB) *Browser {
	t.Helper()
	path := find(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	var cmd *exec.Cmd
	b := &Browser{profile: t.TempDir()}
	opts := append(chromedp.DefaultExecAllocatorOptions[:len(chromedp.DefaultExecAllocatorOptions):len(chromedp.DefaultExecAllocatorOptions)],
		chromedp.ExecPath(path), chromedp.UserDataDir(b.profile),
		// Helpers of Chromium outlive a killed main process unless they are ended as the group that they are.
		chromedp.ModifyCmdFunc(func(c *exec.Cmd) {
			cmd = c
			c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		}))
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // Chromium refuses to run as root with one
	}
	ctx, endAllocator := chromedp.NewExecAllocator(ctx, opts...)
	ctx, endTab := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		endTab()
		endAllocator()
		if cmd != nil && cmd.Process != nil {
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Errorf("ending the browser's process group: %v", err)
			}
		}
		awaitGone(t, b.profile)
		cancel()
	})
	b.ctx = ctx
	if err := b.listen(); err != nil {
		t.Fatalf("starting %s: %v", path, err)
	}
	return b
}

// find is the browser of this machine.
func find(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("FLEETDRILL_REQUIRE_SHARED") == "1" {
		t.Fatal("no chromium on this machine and FLEETDRILL_REQUIRE_SHARED=1: apt-get install chromium")
	}
	t.Skip("no chromium on this machine: apt-get install chromium")
	return ""
}

// awaitGone waits until no process of the browser is left: one that is still ending writes into the folder
// that the test removes next.
func awaitGone(t testing.TB, profile string) {
	t.Helper()
	for giveUp := time.Now().Add(patience); processesOf(profile) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(giveUp) {
			t.Errorf("%d processes of the browser do not end", processesOf(profile))
			return
		}
	}
}

// processesOf counts the living processes that name a profile folder; a zombie has no command line.
func processesOf(profile string) int {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0
	}
	n := 0
	for _, f := range files {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(profile)) {
			n++
		}
	}
	return n
}

// listen collects what the tab asks for and complains about.
func (b *Browser) listen() error {
	// Listen, not an iterator: it sees an event before the command that caused it returns, so that what a
	// look asks for is complete when the look ends.
	err := chromedp.Listen(b.ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			b.requests = append(b.requests, e.Request.URL)
		case *runtime.EventConsoleAPICalled:
			b.console = append(b.console, "console."+string(e.Type))
		case *runtime.EventExceptionThrown:
			b.console = append(b.console, "exception: "+e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			b.console = append(b.console, string(e.Entry.Level)+": "+e.Entry.Text)
		}
	})
	if err != nil {
		return err
	}
	_, err = chromedp.Call(b.ctx, network.Enable, network.EnableParams{})
	return err
}

// View is what one look at a page showed.
type View struct {
	// Requests are the URLs asked for besides the page itself, Console what the page or the browser
	// complained about.
	Requests, Console []string
	Scripts           int `json:"scripts"`
	// PageWidth is how wide the body is, ScreenWidth how wide the screen, in CSS pixels.
	PageWidth   float64 `json:"pageWidth"`
	ScreenWidth float64 `json:"screenWidth"`
	// Faint lists texts whose contrast with what is behind them is below LeastContrast, Texts counts all.
	Faint []string `json:"faint"`
	Texts int      `json:"texts"`
	// Pictures are the SVG elements that take up room and are not hidden, of Drawings in all.
	Pictures int `json:"pictures"`
	Drawings int `json:"drawings"`
	// Struck lists texts of a picture that lie upon another.
	Struck []string `json:"struck"`
}

// Look opens a page and measures it.
func (b *Browser) Look(path string, eye Eye) (View, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return View{}, err
	}
	if err := chromedp.Do(b.ctx, chromedp.EmulateViewport(eye.Width, 900)); err != nil {
		return View{}, err
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: eye.Scheme}}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
		return View{}, err
	}
	b.mu.Lock()
	b.requests, b.console = nil, nil
	b.mu.Unlock()
	// A file of this machine: whatever else is asked for is a request that the page should not make.
	url := "file://" + abs
	if err := chromedp.Do(b.ctx, chromedp.Navigate(url)); err != nil {
		return View{}, err
	}
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[View](probe))
	if err != nil {
		return View{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v.Console = b.console
	for _, r := range b.requests {
		if r != url {
			v.Requests = append(v.Requests, r)
		}
	}
	return v, nil
}
