package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

const (
	cookieName = "kubenergy-dashboard"
	themeName  = "kubenergy-theme"
	keyName    = "key" // of the first URL
	policyCSP  = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
	young        = 5 * time.Second  // maximum age of a cached model, so that many pages do not cost more than one
	looks        = 15 * time.Second // interval between checks for changes
	maxAge       = 60 * time.Second // maximum age of a page, because its times are relative to now
	timeout      = 30 * time.Second
	maxQuery     = 4096
	maxQuerySpan = 800 * 24 * time.Hour // same as the limit of the ledger
)

// Server serves the page of a source to the user who opened it, on a loopback address. The first URL contains a
// secret that is valid once. It is exchanged for a cookie that is valid for this address while the program runs.
type Server struct {
	source  Source
	host    string // listening address and port
	csrf    string
	session string

	now    func() time.Time
	making singleflight.Group // deduplicates the creation of models, by request

	mu     sync.Mutex
	key    string // empty if it was used
	models map[string]kept
	acts   int // number of performed actions; each action changes models
}

// kept is a recently created model.
type kept struct {
	made  time.Time
	model *Model
}

// NewServer returns a server for a listener with the given address.
func NewServer(source Source, address net.Addr, now func() time.Time) *Server {
	return &Server{
		source: source, host: address.String(), csrf: rand.Text(), session: rand.Text(), key: rand.Text(),
		models: map[string]kept{}, now: now,
	}
}

// Address returns the URL to open first.
func (s *Server) Address() string {
	return "http://" + s.host + "/?" + url.Values{keyName: {s.key}}.Encode()
}

// Handler returns the handler of all requests. It rejects requests that do not come from the browser of the user.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, answer func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := answer(w, r); err != nil {
				f := fault{http.StatusBadGateway, err}
				errors.As(err, &f)
				w.Header().Del("Content-Disposition")
				refuse(w, f.status, f.Error())
			}
		})
	}
	filled := func(path string, v View, fill func(*page, *http.Request) error) {
		handle("GET "+path, func(w http.ResponseWriter, r *http.Request) error {
			p, err := s.start(w, r, v)
			if err == nil {
				err = fill(p, r)
			}
			if err != nil {
				return err
			}
			return s.write(w, p)
		})
	}
	filled("/{$}", Overview, viewed)
	for _, v := range append([]View{"how"}, views[1:]...) {
		filled("/"+string(v), v, viewed)
	}
	filled("/job", Overview, s.job)
	filled("/decision", "decision", s.decision)
	filled("/origin", Overview, s.origin)
	filled("/act", Overview, s.effect)
	handle("GET /search", s.search)
	handle("GET /model.json", s.model)
	handle("GET /csv", s.csv)
	handle("GET /svg", s.svg)
	handle("POST /act", s.act)
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("GET /assets/{name}", serveAsset)
	return s.guard(recovering(mux))
}

// recovering responds with an error page if a handler panics.
func recovering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if what := recover(); what != nil {
				slog.Error("Panic in a page", "path", r.URL.Path, "panic", what, "stack", string(debug.Stack()))
				refuse(w, http.StatusInternalServerError, "Rendering the page failed with a panic. See the log.")
			}
		}()
		h.ServeHTTP(w, r)
	})
}

// fault is an error with the status code of its response. Other errors come from the source and result in status
// code 502.
type fault struct {
	status int
	error
}

func wrong(format string, args ...any) error {
	return fault{http.StatusBadRequest, fmt.Errorf(format, args...)}
}

func absent(what string) error { return fault{http.StatusNotFound, errors.New("there is no " + what)} }

// present returns the error of a source, which returns neither an error nor a value for unknown names.
func present[T any](found *T, err error, what string) error {
	if err == nil && found == nil {
		return absent(what)
	}
	return err
}

var errNoActs = fault{http.StatusForbidden, errors.New("this page does not allow changes")}

// refuse writes an error page.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<!DOCTYPE html><html lang="en"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s · KubEnergy</title><link rel="icon" href="/assets/icon.svg"><link rel="stylesheet" href="/assets/style.css">
<main><h1>%[1]s</h1><p class="lead">%s</p></main></html>`, http.StatusText(status), html.EscapeString(text))
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "max-age=300")
	http.ServeFileFS(w, r, assets, "assets/"+r.PathValue("name"))
}

// query parses the requested time range and run.
func (s *Server) query(r *http.Request, v View) (q Query, err error) {
	values := r.URL.Query()
	q = Query{View: v, Run: -1}
	if text := values.Get("run"); text != "" {
		if q.Run, err = strconv.Atoi(text); err != nil {
			return q, wrong("run is %.40q: want a whole number", text)
		}
	}
	for name, into := range map[string]*time.Time{"from": &q.From, "to": &q.To} {
		if text := values.Get(name); text != "" {
			if *into, err = humanize.ParseTime(name, text, s.now()); err != nil {
				return q, wrong("%w", err)
			}
		}
	}
	end := q.To
	if end.IsZero() && s.source.Live() {
		end = s.now()
	}
	if !q.From.IsZero() && !end.IsZero() && (q.To.Equal(end) && !q.From.Before(end) || end.Sub(q.From) > maxQuerySpan) {
		return q, wrong("from is not before to, or more than 800 days earlier")
	}
	return q, nil
}

// get returns the requested model. Requests at nearly the same time share one model, or the error of its creation.
func (s *Server) get(ctx context.Context, q Query) (*Model, error) {
	s.mu.Lock()
	name := fmt.Sprint(s.acts, q.View, q.From.Unix(), q.To.Unix(), q.Run)
	old := func(_ string, k kept) bool { return s.now().Sub(k.made) > young }
	k, known := s.models[name]
	if s.source.Live() && old(name, k) {
		known = false
	}
	s.mu.Unlock()
	if !known {
		made, err, _ := s.making.Do(name, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
			defer cancel()
			m, err := s.source.Model(ctx, q)
			if err != nil {
				return nil, err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			maps.DeleteFunc(s.models, old)
			s.models[name] = kept{s.now(), m}
			return m, nil
		})
		if err != nil {
			return nil, err
		}
		k.model = made.(*Model)
	}
	m := *k.model // pages sort their findings, but share the model
	m.Findings = slices.Clone(m.Findings)
	return &m, nil
}

// start returns a new page for a request.
func (s *Server) start(w http.ResponseWriter, r *http.Request, v View) (*page, error) {
	q, err := s.query(r, v)
	if err != nil {
		return nil, err
	}
	if theme := r.URL.Query().Get("theme"); theme == "dark" || theme == "light" {
		http.SetCookie(w, &http.Cookie{
			Name: themeName, Value: theme, Path: "/", MaxAge: 365 * 24 * 3600, HttpOnly: true,
			SameSite: http.SameSiteStrictMode,
		})
		r.AddCookie(&http.Cookie{Name: themeName, Value: theme})
	}
	m, err := s.get(r.Context(), q)
	if err != nil {
		return nil, fmt.Errorf("reading the data of the page: %w", err)
	}
	p := &page{Model: m, View: v, Live: s.source.Live(), CSRF: s.csrf, query: r.URL.Query(), asked: q}
	for _, c := range r.CookiesNamed(themeName) {
		if c.Value == "dark" || c.Value == "light" {
			p.Theme = c.Value
		}
	}
	return p, nil
}

func (s *Server) write(w http.ResponseWriter, p *page) error {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, "page", p); err != nil {
		return fault{http.StatusInternalServerError, fmt.Errorf("rendering the page: %w", err)}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = b.WriteTo(w)
	return nil
}

// viewed fills the page of a view.
func viewed(p *page, _ *http.Request) error {
	if p.View == Overview && p.Timeless() {
		p.View = Compare
	}
	p.Heading = p.titled(p.View)
	map[View]func(){
		Overview: p.overview, Decisions: p.decisions, Machines: p.machines, Savings: p.savings, Compare: p.compare,
		Doctor: p.doctor, "how": p.how,
	}[p.View]()
	return nil
}

// job fills the page of one Job or pod.
func (s *Server) job(p *page, r *http.Request) error {
	kind, namespace, name := p.query.Get("kind"), p.query.Get("namespace"), p.query.Get("name")
	if kind != "job" && kind != "pod" {
		return wrong("kind is %.40q: want job or pod", kind)
	}
	v, err := s.source.Job(r.Context(), p.asked, kind, namespace, name)
	if err = present(v, err, kind+" with this name"); err != nil {
		return err
	}
	p.View = "job"
	p.job(v)
	if _, allowed := s.source.(Actor); allowed {
		p.Actions = v.actions()
	}
	return nil
}

// decision fills the page of one decision.
func (s *Server) decision(p *page, r *http.Request) (err error) {
	asked := &ledger.Record{ID: p.query.Get("id"), UID: p.query.Get("uid"), Namespace: p.query.Get("namespace")}
	if asked.At, err = time.Parse(time.RFC3339, p.query.Get("at")); err != nil {
		return wrong("at is %.40q: want RFC 3339", p.query.Get("at"))
	}
	d, err := s.source.Decision(r.Context(), p.asked, asked)
	if err = present(d, err, "such decision, or it is no longer stored"); err != nil {
		return err
	}
	p.decision(d)
	return nil
}

// origin fills the page with the breakdown of a figure.
func (s *Server) origin(p *page, r *http.Request) error {
	namespace, owner := p.query.Get("namespace"), p.query.Get("owner")
	p.asked.Cluster = p.query.Get("cluster")
	o, err := s.source.Origin(r.Context(), p.asked, namespace, owner)
	if err = present(o, err, "booked energy of this owner"); err != nil {
		return err
	}
	p.origin(o, namespace, owner)
	return nil
}

// search redirects to the Job with the given name, or to the decisions that contain the text.
func (s *Server) search(w http.ResponseWriter, r *http.Request) error {
	p, err := s.start(w, r, Overview)
	if err != nil {
		return err
	}
	text := strings.TrimSpace(p.query.Get("q"))
	found := "/decisions?" + p.ofRun(url.Values{"q": {text}})
	for i := range p.Jobs {
		if j := &p.Jobs[i]; text != "" && (j.Name == text || j.path() == text) {
			found = jobLink(p.Model, j)
			break
		}
	}
	http.Redirect(w, r, found, http.StatusSeeOther)
	return nil
}

// model serves the model of a page as JSON.
func (s *Server) model(w http.ResponseWriter, r *http.Request) error {
	v := cmp.Or(View(r.URL.Query().Get("view")), Overview)
	if !slices.Contains(views, v) {
		return wrong("view is %.40q: want overview, decisions, machines, savings, compare or doctor", v)
	}
	p, err := s.start(w, r, v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(p.Model)
}

// events notifies a page of changes with server-sent events.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	flush, ok := w.(http.Flusher)
	if !ok || !s.source.Live() {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	forever := http.NewResponseController(w)
	_, _ = forever.SetReadDeadline(time.Time{}), forever.SetWriteDeadline(time.Time{}) // an error means no deadline
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "retry: 5000\n\n")
	flush.Flush()
	last, reported := s.digest(r.Context()), s.now()
	ticks := time.NewTicker(looks)
	defer ticks.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-ticks.C:
		}
		if d := s.digest(r.Context()); d != last || s.now().Sub(reported) >= maxAge {
			last, reported = d, s.now()
			if _, err := fmt.Fprint(w, "event: changed\ndata: \n\n"); err != nil {
				return
			}
			flush.Flush()
		}
	}
}

// digest returns a hash of the model without values that change all the time, such as ages.
func (s *Server) digest(ctx context.Context) string {
	m, err := s.get(ctx, Query{View: Overview, Run: -1})
	if err != nil {
		return err.Error()
	}
	still := *m
	still.Now, still.From, still.To, still.Power = time.Time{}, time.Time{}, time.Time{}, nil
	still.Zones, still.Budgets = nil, slices.Clone(m.Budgets)
	for i := range still.Budgets {
		still.Budgets[i].UsedUp = nil // it is extrapolated from the current time
	}
	data, err := json.Marshal(&still)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

func actOf(values url.Values) Act {
	return Act{
		Do: values.Get("do"), Kind: values.Get("kind"), Namespace: values.Get("namespace"), Name: values.Get("name"),
		Mode: values.Get("mode"),
	}
}

// effect shows the effect of an action and requests a confirmation.
func (s *Server) effect(p *page, r *http.Request) error {
	actor, allowed := s.source.(Actor)
	if !allowed {
		return errNoActs
	}
	a := actOf(p.query)
	effect, command, err := actor.Effect(r.Context(), a)
	if err != nil {
		return wrong("%w", err)
	}
	p.View, p.Form, p.Said, p.Commands = "act", &a, []string{effect}, []string{command}
	p.Heading, p.Button = "Switch the mode of "+a.Namespace+" to "+a.Mode+"?", "Switch to "+a.Mode
	if a.Do == DoRunNow {
		p.Heading, p.Button = "Run "+a.Namespace+"/"+a.Name+" now?", "Run now"
	}
	return nil
}

// act performs an action with the permissions of the user.
func (s *Server) act(w http.ResponseWriter, r *http.Request) error {
	actor, allowed := s.source.(Actor)
	if !allowed {
		return errNoActs
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxQuery)
	if err := r.ParseForm(); err != nil ||
		subtle.ConstantTimeCompare([]byte(r.PostForm.Get("csrf")), []byte(s.csrf)) != 1 {
		return fault{http.StatusForbidden, errors.New("the form is outdated: reload the page")}
	}
	result, err := actor.Act(r.Context(), actOf(r.PostForm))
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.acts++
	s.mu.Unlock()
	p, err := s.start(w, r, Overview)
	if err != nil {
		return err
	}
	p.View, p.Heading, p.Said = "act", "Done", []string{result}
	return s.write(w, p)
}
