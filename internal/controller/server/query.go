package server

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/humanize"
)

// parameter describes a query parameter of a route.
type parameter struct {
	name, about string
	many        bool // may be repeated
	kind        string
	among       []string // allowed values; nil allows all values of the kind
	otherwise   string   // description of the default
	example     string
}

// Kinds of parameters. Except for kindTime, which is a string, they are type names of OpenAPI.
const (
	kindText  = "string"
	kindWhole = "integer"
	kindFlag  = "boolean"
	kindTime  = "instant"
)

// Limits of a query.
const (
	maxValues    = 100 // values of a parameter
	maxValueSize = 512
	maxQuerySize = 16 << 10
	maxRange     = 800 * 24 * time.Hour
	maxRows      = 100_000 // rows of a ledger response
)

// query contains the parsed query of a request and collects the errors found in it.
type query struct {
	values    url.Values
	now       time.Time
	namespace string // from the path; empty if the route has none
	wrong     []string
}

// readQuery parses the query of a request. Unknown parameters are errors, so that a misspelled filter does not
// return unfiltered data.
func readQuery(rt *route, r *http.Request, now time.Time) (*query, error) {
	if len(r.URL.RawQuery) > maxQuerySize {
		return nil, fail(http.StatusRequestURITooLong, "the query is longer than %d bytes", maxQuerySize)
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fail(http.StatusBadRequest, "parsing the query: %.80s", err)
	}
	q := &query{values: values, now: now, namespace: r.PathValue("namespace")}
	if strings.Contains(rt.path, "{namespace}") && !isNamespace(q.namespace) {
		q.refuse("%.80q is not a valid namespace name", q.namespace)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		q.check(rt, name)
	}
	return q, q.err()
}

func (q *query) check(rt *route, name string) {
	i := slices.IndexFunc(rt.query, func(p parameter) bool { return p.name == name })
	if i < 0 {
		q.refuse("unknown parameter %.40q", name)
		return
	}
	p, given := &rt.query[i], q.values[name]
	switch {
	case !p.many && len(given) > 1:
		q.refuse("%s is given %d times, want at most once", name, len(given))
	case len(given) > maxValues:
		q.refuse("%s is given %d times, want at most %d", name, len(given), maxValues)
	}
	for _, value := range given {
		if value == "" || len(value) > maxValueSize || !printable(value) {
			q.refuse("%s has %d bytes or invalid characters, want at most %d", name, len(value), maxValueSize)
			return
		}
		if p.kind == kindFlag && value != "true" && value != "false" {
			q.refuse("%s is %.40q: want true or false", name, value)
		}
		if p.among != nil && !p.many && !slices.Contains(p.among, value) {
			q.refuse("%s is %.40q: want %s", name, value, strings.Join(p.among, ", "))
		}
	}
}

// printable reports whether text from a client is safe to log, store and display.
func printable(text string) bool { return text == "" || batch.CheckText("", text, len(text)) == nil }

func (q *query) refuse(format string, args ...any) {
	const most = 8
	if len(q.wrong) < most {
		q.wrong = append(q.wrong, fmt.Sprintf(format, args...))
	}
}

func (q *query) err() error {
	if len(q.wrong) == 0 {
		return nil
	}
	return fail(http.StatusBadRequest, "%s", strings.Join(q.wrong, "; "))
}

func (q *query) text(name string) string { return q.values.Get(name) }

func (q *query) list(name string) []string { return q.values[name] }

// namespaces returns the requested namespaces. A route of a namespace is always limited to this namespace.
func (q *query) namespaces() []string {
	if q.namespace != "" {
		return []string{q.namespace}
	}
	return q.list("namespace")
}

func (q *query) whole(name string, otherwise, least, most int) int {
	text := q.text(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		q.refuse("%s is %.40q: want %d to %d", name, text, least, most)
		return otherwise
	}
	return n
}

// span returns the requested time range. It defaults to the last day.
func (q *query) span() (from, to time.Time) {
	to = q.instant("to", q.now)
	from = q.instant("from", to.Add(-usualSpan))
	switch {
	case len(q.wrong) > 0:
	case !from.Before(to):
		q.refuse("from (%s) is not before to (%s)", from.Format(time.RFC3339), to.Format(time.RFC3339))
	case to.Sub(from) > maxRange:
		q.refuse("from and to are %v apart, want at most %v", to.Sub(from), maxRange)
	}
	return from, to
}

// Bounds of times in queries. They are wide because clocks of clients may be wrong and the ledger may go back
// years.
var (
	earliest = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

func (q *query) instant(name string, otherwise time.Time) time.Time {
	text := q.text(name)
	if text == "" {
		return otherwise.UTC()
	}
	text = strings.Replace(text, " ", "+", 1) // an unescaped + is decoded as a space
	t, err := humanize.ParseTime(name, text, q.now)
	if err != nil || t.Before(earliest) || t.After(latest) {
		q.refuse("%s is %.40q: want a time (2026-11-03T10:15:00Z), a date (2026-11-03) or an offset (-24h or -7d)",
			name, text)
		return otherwise.UTC()
	}
	return t
}
