package meter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/gpu"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// Scraped reads the energy counters that another agent on this node exports as Prometheus metrics. A separate
// goroutine scrapes the metrics until Close is called. Read returns the latest values and never blocks.
//
// The domains are those of the first response with counters. A counter starts a new run if it decreases, or if the
// start time of the other agent has changed.
type Scraped struct {
	name string
	page string // URL of the metrics
	read func(io.Reader) (page, error)
	now  func() time.Duration

	client   *http.Client
	interval time.Duration
	stale    time.Duration
	scale    func(energy.Domain) int64
	stop     context.CancelFunc
	done     chan struct{}

	mu      sync.Mutex
	answer  page // last successful response
	failure error
	failed  int

	// Used by Read only.
	resumed  []energy.Reading
	domains  []energy.Domain
	counters []scrapedCounter
	taken    time.Duration // time of the last response that was read
	start    string
}

// page is the parsed content of a response.
type page struct {
	at     time.Duration // middle of the request, since boot; 0 if there was no response yet
	start  string        // start time of the other process; empty if unknown
	series []series
	boards []gpu.Board

	invalid error  // last invalid sample, which was skipped
	lost    uint16 // kinds of domains that may be incomplete because of invalid samples, one bit each
}

// reject records an invalid sample of counters of the given kind, or of any kind if it is unknown.
func (p *page) reject(err error, k energy.DomainKind, known bool) {
	p.invalid = err
	if p.lost |= 1 << k; !known {
		p.lost = math.MaxUint16
	}
}

type series struct {
	domain energy.Domain
	raw    uint64 // in microjoules
}

type scrapedCounter struct {
	counter *energy.Counter
	changes changeDetector
	last    energy.Reading
	err     error // set if last is not valid
}

const (
	scrapeTimeout   = 5 * time.Second
	maxScrapeHeader = 64 << 10
	maxSeries       = maxZones

	scrapedMax = energy.Watts(10_000) // maximum power of one counter, which may be the sum of all sockets
)

var (
	errNoAnswer  = errors.New("no response yet")
	errNoCounter = errors.New("no counter of energy in the response")
)

// newScraped starts scraping a URL. The function read parses a response.
func newScraped(c Config, name, url string, read func(io.Reader) (page, error), scale func(energy.Domain) int64,
	log *slog.Logger,
) *Scraped {
	ctx, stop := context.WithCancel(context.Background())
	s := &Scraped{
		name: name, page: url, read: read, now: c.Now, interval: c.ScrapeInterval, stop: stop,
		done:  make(chan struct{}),
		stale: max(c.stale(), 3*c.ScrapeInterval), scale: scale, failure: errNoAnswer,
		client: &http.Client{
			Timeout: scrapeTimeout,
			Transport: &http.Transport{ // no proxy, because the target is on the same node
				DisableCompression:     true,
				MaxIdleConns:           1,
				IdleConnTimeout:        2*c.ScrapeInterval + time.Second,
				MaxResponseHeaderBytes: maxScrapeHeader,
			},
			// Do not follow redirects, which would lead to another agent than the configured one.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	go s.poll(ctx, log)
	return s
}

func (s *Scraped) poll(ctx context.Context, log *slog.Logger) {
	defer close(s.done)
	defer s.client.CloseIdleConnections()
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for {
		answer, err := s.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		before := s.failure
		if err == nil {
			s.answer, err = answer, answer.invalid
		}
		if s.failure = err; err != nil {
			s.failed++
		}
		s.mu.Unlock()
		switch {
		case err == nil && before != nil:
			log.Info("Started reading metrics of another agent", "meter", s.name, "url", s.page,
				"counters", len(answer.series)+len(answer.boards))
		case err != nil && (before == nil || errors.Is(before, errNoAnswer) || answer.invalid != nil &&
			before.Error() != err.Error()):
			log.Warn("Failed to read metrics of another agent", "meter", s.name, "url", s.page, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Scraped) ask(ctx context.Context) (answer page, err error) {
	defer rescue(&err) // invalid responses must not terminate the agent
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.page, nil)
	if err != nil {
		return page{}, err
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	before := s.now()
	response, err := s.client.Do(request)
	if err != nil {
		return page{}, err
	}
	defer func() {
		// drain the body so that the connection can be reused
		_, _ = io.CopyN(io.Discard, response.Body, maxLine)
		_ = response.Body.Close()
	}()
	if response.StatusCode != http.StatusOK {
		return page{}, fmt.Errorf("GET %s: %s", s.page, response.Status)
	}
	at := before + (s.now()-before)/2 // the response header arrives after the counters have been read
	answer, err = s.read(response.Body)
	switch {
	case err != nil:
		return page{}, fmt.Errorf("GET %s: %w", s.page, err)
	case len(answer.series)+len(answer.boards) == 0:
		return page{}, fmt.Errorf("GET %s: %w", s.page, cmp.Or(answer.invalid, errNoCounter))
	case len(answer.series) > maxSeries:
		return page{}, fmt.Errorf("GET %s: too many counters: %d", s.page, len(answer.series))
	}
	answer.at = max(at, 1)
	for i := range answer.boards {
		answer.boards[i].At = answer.at
	}
	return answer, nil
}

// Name implements Meter.
func (s *Scraped) Name() string { return s.name }

// Domains implements Meter. There are no domains before the first response.
func (s *Scraped) Domains() []energy.Domain {
	if s.domains == nil {
		answer, _ := s.latest()
		s.begin(answer)
	}
	return s.domains
}

func (s *Scraped) latest() (page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer, s.failure
}

// Failures returns the number of failed scrapes. Most of them are harmless, because counters are cumulative. Read
// returns an error only if the last response is too old.
func (s *Scraped) Failures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// begin adds the series of the first response as domains, except for counters of optional kinds that are zero, and
// kinds with an invalid sample, because a subset of the packages does not cover the machine.
func (s *Scraped) begin(answer page) {
	for _, x := range answer.series {
		if x.raw == 0 && !mustMove(x.domain.Kind) || answer.lost>>x.domain.Kind&1 == 1 {
			continue
		}
		c := scrapedCounter{counter: energy.NewCounter(energy.CounterOptions{
			Domain: x.domain, Quality: energy.Derived, MicrojoulesPerUnit: 1, Max: scrapedMax, Scale: s.scale(x.domain),
			Period: period(s.stale),
		})}
		c.counter.Resume(s.resumed...)
		s.domains = append(s.domains, x.domain)
		s.counters = append(s.counters, c)
	}
}

// Resume implements Meter.
func (s *Scraped) Resume(last []energy.Reading) {
	s.resumed = append(s.resumed, last...)
	for i := range s.counters {
		s.counters[i].counter.Resume(last...)
	}
}

// Read implements Meter. Between two responses, the readings of the last one remain valid.
func (s *Scraped) Read(t Tick, into []energy.Reading) ([]energy.Reading, error) {
	answer, err := s.latest()
	if answer.at == 0 {
		return into, err
	}
	if len(s.Domains()) == 0 {
		return into, errors.Join(err, fmt.Errorf("no counter of %s is in use", s.page))
	}
	if answer.at != s.taken {
		s.record(answer)
	}
	if age := t.Now() - answer.at; age > s.stale {
		return into, errors.Join(err, fmt.Errorf("the last response of %s is %v old", s.page, age.Round(time.Second)))
	}
	err = nil // the last response is recent enough
	for i := range s.counters {
		if c := &s.counters[i]; c.err != nil {
			err = errors.Join(err, c.err)
		} else {
			into = append(into, c.last)
		}
	}
	return into, err
}

// record updates the counters from a response. A counter with an invalid sample keeps its last reading.
func (s *Scraped) record(answer page) {
	restarted := s.start != "" && answer.start != "" && answer.start != s.start
	s.taken, s.start = answer.at, cmp.Or(answer.start, s.start)
	for i, d := range s.domains {
		c := &s.counters[i]
		if restarted {
			c.counter.Break()
		}
		at := slices.IndexFunc(answer.series, func(x series) bool { return x.domain == d })
		if at < 0 {
			if answer.lost>>d.Kind&1 == 1 && c.last.At > 0 && answer.at-c.last.At <= s.stale {
				continue
			}
			c.err = fmt.Errorf("%s is missing in the response of %s", d.Name, s.page)
			continue
		}
		raw := answer.series[at].raw
		if age := c.changes.beat(raw, answer.at); mustMove(d.Kind) && age > s.stale {
			c.err = fmt.Errorf("%s of %s does not advance: %d for %v", d.Name, s.page, raw, age.Round(time.Second))
			continue
		}
		c.last, c.err = c.counter.Next(raw, answer.at), nil
	}
}

// Close implements Meter.
func (s *Scraped) Close() error {
	s.stop()
	<-s.done
	return nil
}
