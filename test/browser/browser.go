// Package browser opens the pages of kubenergy dashboard in Chromium and checks that each page has no errors, no
// requests to other hosts, a bounded number of elements, no horizontal scrolling and no accessibility violations
// found by axe-core. It is for tests only.
package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/kubenergy/kubenergy/test/kit"
)

// MaxElements is the maximum number of SVG elements on a page.
const MaxElements = 1500

// Size is the size of a browser window in pixels.
type Size struct{ Width, Height int64 }

// Laptop is the smallest size at which the overview must fit without scrolling.
var Laptop = Size{1280, 800}

// Sizes lists the window sizes that are checked.
var Sizes = []Size{Laptop, {1920, 1080}, {390, 844}}

// Browser is a Chromium instance with one page.
type Browser struct {
	t    testing.TB
	ctx  context.Context
	host string // scheme, name and port of the page
	axe  string // source code of axe-core, or "" if make axe has not downloaded it

	mu     sync.Mutex
	faults []string // errors of the current page

	barriers []string // violations found by axe-core
}

// Serve runs kubenergy dashboard until the test ends and returns the URL that it prints.
func Serve(t testing.TB, args ...string) string {
	t.Helper()
	p := kit.Start(t, t.TempDir(), "dashboard",
		exec.Command(kit.Build(t, "./cmd/kubenergy"), append([]string{"dashboard", "--no-browser"}, args...)...))
	address := ""
	kit.Eventually(t, 20*time.Second, "the dashboard prints its URL", func() bool {
		address = regexp.MustCompile(`http://\S+`).FindString(p.Output())
		return address != ""
	}, p)
	return address
}

// Open starts Chromium, which runs until the test ends, and opens a URL printed by kubenergy dashboard. The test is
// skipped if Chromium is not installed.
func Open(t testing.TB, address string) *Browser {
	t.Helper()
	found := func(program string) bool { _, err := exec.LookPath(program); return err == nil }
	if !slices.ContainsFunc([]string{"chromium", "chromium-browser", "google-chrome"}, found) {
		t.Skip("Chromium is not installed: install the Debian package chromium")
	}
	b := &Browser{t: t, host: address[:strings.Index(address, "/?")]}
	if axe, err := os.ReadFile(filepath.Join(kit.Root, "out", "axe", "package", "axe.min.js")); err == nil {
		b.axe = string(axe)
	}
	// The sandbox of Chromium requires permissions that containers lack. Only pages of the dashboard are opened.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	b.ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	if err := chromedp.Listen(b.ctx, b.hear); err != nil {
		t.Fatalf("starting Chromium: %v", err)
	}
	t.Cleanup(func() { b.blame("after the test") })
	do(b, chromedp.Navigate(address))
	return b
}

// hear records errors, warnings and requests to other hosts.
func (b *Browser) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.fault("exception: %s", e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "assert" || e.Type == "warning" {
			b.fault("console: %s %s", e.Type, e.Args[0].Value)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" {
			b.fault("log: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if at := e.Request.URL; !strings.HasPrefix(at, b.host+"/") && !strings.HasPrefix(at, "data:") {
			b.fault("request to another host: %s", at)
		}
	}
}

func do[T any](b *Browser, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	result, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func call[P, R any](b *Browser, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	return do(b, func(ctx context.Context, _ *chromedp.Target) (R, error) { return chromedp.Call(ctx, command, params) })
}

// Eval evaluates a JavaScript expression and returns its value. If the value is a promise, Eval waits for its
// result.
func Eval[T any](b *Browser, expression string) T {
	b.t.Helper()
	return do(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Await waits until the page and its script have been loaded and the expression is true.
func (b *Browser) Await(expression string) {
	b.t.Helper()
	whole := "document.readyState === 'complete' && (" + expression + ")"
	kit.Await(b.t, 30*time.Second, expression, func(context.Context) (bool, error) {
		return chromedp.Run(b.ctx, chromedp.Evaluate[bool](whole)) // fails while another page is being opened
	})
}

// Visit opens a path.
func (b *Browser) Visit(path string) {
	b.t.Helper()
	do(b, chromedp.Navigate(b.host+path))
}

// Press presses a key.
func (b *Browser) Press(key string) {
	b.t.Helper()
	do(b, chromedp.KeyEvent(key))
}

// Click clicks on the first element that matches the selector.
func (b *Browser) Click(selector string) {
	b.t.Helper()
	do(b, chromedp.Click(chromedp.CSS(selector)))
}

// Drag presses the mouse button at (x, y), moves the mouse to (toX, toY) and releases the button.
func (b *Browser) Drag(x, y, toX, toY float64) {
	b.t.Helper()
	do(b, chromedp.DragAndDropXY(x, y, toX, toY, 5))
}

// As sets the size of the window and the color scheme.
func (b *Browser) As(s Size, theme string) {
	b.t.Helper()
	do(b, chromedp.EmulateViewport(s.Width, s.Height))
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
	})
}

// Picture writes a screenshot of the upper part of the page. The extension of path, png or webp, selects the
// format.
func (b *Browser) Picture(path string, s Size) {
	b.t.Helper()
	shot := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Format: page.CaptureScreenshotFormat(filepath.Ext(path)[1:]), Quality: new(int64(90)),
		CaptureBeyondViewport: new(true),
		Clip:                  &page.Viewport{Width: float64(s.Width), Height: float64(s.Height), Scale: 1},
	})
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, shot.Data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// Elements returns the number of SVG elements on the page.
func (b *Browser) Elements() int {
	b.t.Helper()
	return Eval[int](b, `document.querySelectorAll('svg *').length`)
}

// Views follows links from the start page and returns one path for each kind of page.
func (b *Browser) Views() map[string]string {
	b.t.Helper()
	found := map[string]string{"now": "/"}
	for next := []string{"/"}; len(next) > 0; next = next[1:] {
		b.Visit(next[0])
		for _, link := range Eval[[]string](b, `[...document.querySelectorAll('nav a, main a')]
			.filter(a => !a.hasAttribute('download')).map(a => a.getAttribute('href'))`) {
			u, err := url.Parse(link)
			if err != nil {
				b.t.Fatal(err)
			}
			name := strings.Trim(u.Path, "/") + u.Query().Get("do")
			if name != "" && found[name] == "" {
				found[name] = link
				next = append(next, link)
			}
		}
	}
	return found
}

// Check opens each view in all themes and in the given window sizes, fails the test for each error and writes
// screenshots to out/browser. All views in want must be reachable through links.
func (b *Browser) Check(name string, sizes []Size, want ...string) {
	b.t.Helper()
	views := b.Views()
	for _, view := range want {
		if views[view] == "" {
			b.t.Errorf("%s: no link to the page %q found", name, view)
		}
	}
	for _, size := range sizes {
		for _, theme := range []string{"light", "dark"} {
			b.As(size, theme)
			for view, path := range views {
				b.Visit(path)
				b.check(fmt.Sprintf("%s-%s-%dx%d-%s", name, view, size.Width, size.Height, theme), size)
			}
		}
	}
}

func (b *Browser) check(name string, size Size) {
	b.t.Helper()
	for _, finding := range b.findings() {
		b.barriers = append(b.barriers, name+": "+finding)
	}
	seen := Eval[struct {
		View       string
		Wide, Tall int64
	}](b, `({View: document.body.dataset.view, Wide: document.documentElement.scrollWidth,
		Tall: document.documentElement.scrollHeight})`)
	b.Picture(filepath.Join(kit.Root, "out", "browser", name+".png"), Size{size.Width, min(seen.Tall, 2000)})
	if n := b.Elements(); n > MaxElements {
		b.fault("%d SVG elements, want at most %d", n, MaxElements)
	}
	if seen.Wide > size.Width {
		b.fault("page is %d pixels wide and requires horizontal scrolling", seen.Wide)
	}
	if seen.View == "overview" && size.Width >= Laptop.Width && seen.Tall > size.Height {
		b.fault("overview is %d pixels high and does not fit in the window", seen.Tall)
	}
	b.blame(name)
}

func (b *Browser) fault(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// blame fails the test for each error since the last call.
func (b *Browser) blame(name string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		b.t.Errorf("%s: %s", name, fault)
	}
	b.faults = nil
}

// findings returns the serious and critical violations that axe-core finds on the page.
func (b *Browser) findings() []string {
	b.t.Helper()
	if b.axe == "" {
		return nil
	}
	Eval[chromedp.Void](b, b.axe)
	return Eval[[]string](b, `axe.run({resultTypes: ['violations']}).then(r => r.violations
		.filter(v => ['serious', 'critical'].includes(v.impact))
		.map(v => v.id + ': ' + v.nodes.map(n => n.html.slice(0, 160) + ' ' + n.failureSummary).join('; ')))`)
}

// Accessible fails if axe-core found serious violations on a checked page. It is skipped if axe-core is not
// available.
func (b *Browser) Accessible(t *testing.T) {
	if b.axe == "" {
		t.Skip("axe-core is not available: run make axe, which requires npm")
	}
	for _, barrier := range b.barriers {
		t.Error(barrier)
	}
}

// FirstPaint opens a page 20 times and returns the median time until its first paint.
func (b *Browser) FirstPaint(path string) time.Duration {
	b.t.Helper()
	var took []time.Duration
	for range 20 {
		b.Visit(path)
		ms := Eval[float64](b, `new Promise(painted => new PerformanceObserver(
			all => painted(all.getEntries()[0].startTime)).observe({type: 'paint', buffered: true}))`)
		took = append(took, time.Duration(ms*float64(time.Millisecond)))
	}
	slices.Sort(took)
	return took[len(took)/2]
}
