// Package browser tests the web page in a real Chromium, against the real admin listener.
package browser

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience is how long a condition may take to come true, and one thing that the browser does, on a machine that is busy.
const patience = 25 * time.Second

// shots is where pictures of the states go.
var shots = flag.String("shots", "", "a directory for screenshots; none are taken without it")

var browser context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := withBrowser(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withBrowser runs f with a Chromium that knows nothing and calls nobody.
func withBrowser(f func() int) (int, error) {
	profile, err := os.MkdirTemp("", "page-test")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(profile)
	allocator, end := chromedp.NewExecAllocator(context.Background(),
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.UserDataDir(profile),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true), chromedp.Flag("lang", "en-GB"),
		chromedp.Env("TZ=UTC"), chromedp.WSURLReadTimeout(time.Minute),
	)
	defer end()
	var stop context.CancelFunc
	browser, stop = chromedp.NewContext(allocator)
	defer stop()
	if err := chromedp.Do(browser); err != nil {
		return 0, fmt.Errorf("start chromium: %w", err)
	}
	return f(), nil
}

// tab is one page, with cookies and storage of its own. It fails the test for each script that should not have run or could not.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu     sync.Mutex
	faults []string
}

// watchViolations notes what the Content-Security-Policy kept from happening.
const watchViolations = `window.violations = [];
addEventListener('securitypolicyviolation', (e) => window.violations.push(e.violatedDirective + ' ' + e.blockedURI));`

func open(t *testing.T, url, hash string) *tab {
	t.Helper()
	b := opened(t, url)
	b.goTo(hash)
	return b
}

// opened is a tab that is not anywhere yet.
func opened(t *testing.T, url string) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := &tab{t: t, ctx: ctx, url: url}
	t.Cleanup(func() {
		if t.Failed() && *shots != "" {
			b.shot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
		closeTab()
		for _, f := range b.noted() {
			t.Error(f)
		}
	})
	b.must(chromedp.Listen(ctx, b.listen))
	call(b, page.Enable, page.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watchViolations})
	b.size(1280, 900)
	return b
}

func (b *tab) listen(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += ": " + e.ExceptionDetails.Exception.Description
		}
		b.note("exception: " + text)
	case *page.EventJavascriptDialogOpening:
		b.note("a dialog opens: " + e.Message)
	case *log.EventEntryAdded:
		// Refused and failed requests are part of the stories; all else is not.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			b.note("log: " + e.Entry.Text)
		}
	}
}

func (b *tab) note(fault string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, fault)
}

func (b *tab) noted() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.faults
}

func (b *tab) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// step is a context for one thing that the browser does.
func (b *tab) step() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.ctx, patience)
}

func (b *tab) do(action chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	run(b, action)
}

// run is what an action returns.
func run[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := b.step()
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	b.must(err)
	return v
}

func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, cancel := b.step()
	defer cancel()
	_, err := chromedp.Call(ctx, command, params)
	b.must(err)
}

// goTo opens an address of the page, such as #/dlq.
func (b *tab) goTo(hash string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url + "/" + hash))
}

// eval is the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression))
}

// wait waits until an expression is true.
func (b *tab) wait(expression string) {
	b.t.Helper()
	b.until(expression, func() bool { return eval[bool](b, "Boolean("+expression+")") })
}

// until waits for a condition.
func (b *tab) until(what string, holds func() bool) {
	b.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(patience); !holds(); <-look.C {
		if time.Now().After(end) {
			b.t.Fatalf("waited for %s; the page says:\n%s", what, eval[string](b, "document.body.innerText"))
		}
	}
}

// see waits until a text is to be seen in the first element that the selector names.
func (b *tab) see(selector, text string) {
	b.t.Helper()
	b.wait(fmt.Sprintf("document.querySelector(%q)?.checkVisibility() && document.querySelector(%q).innerText.includes(%q)", selector, selector, text))
}

// gone waits until nothing that the selector names is to be seen.
func (b *tab) gone(selector string) {
	b.t.Helper()
	b.wait(fmt.Sprintf("![...document.querySelectorAll(%q)].some((e) => e.checkVisibility())", selector))
}

// click presses the button or link of this text that is to be seen, as a mouse does, once it stays in its place and nothing covers it.
func (b *tab) click(text string) {
	b.t.Helper()
	find := fmt.Sprintf(`(() => {
		const e = [...document.querySelectorAll('button, a, [role=tab], summary')].filter((e) => e.checkVisibility() && !e.disabled && e.innerText.trim().startsWith(%q)).at(-1);
		if (!e) return [];
		e.scrollIntoView({block: 'center', behavior: 'instant'});
		const r = e.getBoundingClientRect();
		const at = [r.x + r.width / 2, r.y + r.height / 2];
		return e.contains(document.elementFromPoint(...at)) ? at : [];
	})()`, text)
	var at []float64
	b.until("a button "+text, func() bool {
		before := at
		at = eval[[]float64](b, find)
		return len(at) > 0 && slices.Equal(at, before)
	})
	b.do(chromedp.MouseClickXY(at[0], at[1]))
}

// fill sets a field as somebody who types does.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	eval[bool](b, fmt.Sprintf("(() => { const e = document.querySelector(%q); e.focus(); e.select(); return true; })()", selector))
	call(b, input.InsertText, input.InsertTextParams{Text: text})
}

func (b *tab) press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// tabTo presses the tab key until the element that has the focus has this text.
func (b *tab) tabTo(text string) {
	b.t.Helper()
	for range 200 {
		b.press(kb.Tab)
		if strings.HasPrefix(eval[string](b, "(document.activeElement.innerText || '').trim()"), text) {
			return
		}
	}
	b.t.Fatalf("the tab key does not reach %q", text)
}

func (b *tab) size(width, height int64) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
}

// calm checks that nothing ran that should not have.
func (b *tab) calm() {
	b.t.Helper()
	if v := eval[[]string](b, "window.violations"); len(v) > 0 {
		b.t.Errorf("the policy was violated: %q", v)
	}
	if wide := eval[bool](b, "document.documentElement.scrollWidth > document.documentElement.clientWidth"); wide {
		b.t.Errorf("the page scrolls sideways: %v wide", eval[float64](b, "document.documentElement.scrollWidth"))
	}
}

// shot takes a picture, light and dark, and checks that all is calm.
func (b *tab) shot(name string) {
	b.t.Helper()
	b.calm()
	if *shots == "" {
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		png := run(b, chromedp.CaptureScreenshot())
		if err := os.WriteFile(filepath.Join(*shots, name+"-"+scheme+".png"), png, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
}
