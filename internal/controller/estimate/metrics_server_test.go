package estimate

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

var everything = func(string, string) bool { return true }

// asked returns a MetricsServer with a fake API server and a clock at noon.
func asked(t *testing.T, serve http.HandlerFunc) (*MetricsServer, *time.Duration) {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	m, err := NewMetricsServer(&rest.Config{Host: server.URL, QPS: -1}, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	up := new(time.Duration)
	m.uptime = func() time.Duration { return *up }
	m.clock = func() time.Time { return time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC) }
	return m, up
}

func lists(nodes, pods string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/metrics.k8s.io/v1beta1/nodes":
			_, _ = io.WriteString(w, nodes)
		case "/apis/metrics.k8s.io/v1beta1/pods":
			_, _ = io.WriteString(w, pods)
		default:
			http.NotFound(w, r)
		}
	}
}

func item(namespace, name, at, cpus string) string {
	return fmt.Sprintf(
		`{"metadata":{"name":%q,"namespace":%q,"creationTimestamp":"x"},"timestamp":%q,"window":"20s",%s}`, name,
		namespace, at, cpus)
}

func containers(cpus ...string) string {
	all := make([]string, len(cpus))
	for i, cpu := range cpus {
		all[i] = fmt.Sprintf(`{"name":"c%d","usage":{"cpu":%q,"memory":"12Mi"}}`, i, cpu)
	}
	return `"containers":[` + strings.Join(all, ",") + `]`
}

func listOf(items ...string) string {
	return `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[` +
		strings.Join(items, ",") + `]}`
}

const justNow = "2026-03-10T11:59:40Z"

func TestUsage(t *testing.T) {
	nodes := listOf(
		item("", "good", justNow, `"usage":{"cpu":"1535m","memory":"1Gi"}`),
		item("", "old", "2026-03-10T11:50:00Z", `"usage":{"cpu":"1"}`),
		item("", "future", "2026-03-10T12:10:00Z", `"usage":{"cpu":"1"}`),
		item("", "negative", justNow, `"usage":{"cpu":"-1"}`),
		item("", "garbage", justNow, `"usage":{"cpu":"much"}`),
		item("", "endless", justNow, `"usage":{"cpu":"`+strings.Repeat("9", 1000)+`"}`),
		item("", "huge", justNow, `"usage":{"cpu":"9000000000k"}`),
		item("", "exponent", justNow, `"usage":{"cpu":"1e7"}`),
		// resource.ParseQuantity does not return for this value in reasonable time.
		item("", "negative exponent", justNow, `"usage":{"cpu":"1e-9999999"}`),
		item("", "hexadecimal", justNow, `"usage":{"cpu":"0x10"}`),
		item("", "two suffixes", justNow, `"usage":{"cpu":"1nm"}`),
		item("", "suffix", justNow, `"usage":{"cpu":"m"}`),
		item("", "inside", justNow, `"usage":{"cpu":"1m1"}`),
		item("", "infinite", justNow, `"usage":{"cpu":"Inf"}`),
	)
	pods := listOf(
		item("shop", "two", justNow, containers("123456789n", "1500u")),
		item("shop", "none", justNow, containers()),
		item("shop", "half", justNow, containers("1", "x")),
		item("shop", "excluded", justNow, containers("1")),
	)
	m, _ := asked(t, lists(nodes, pods))
	u, err := m.Usage(t.Context(), func(namespace, name string) bool {
		return namespace == "shop" &&
			name != "excluded"
	})
	if err != nil {
		t.Fatal(err)
	}
	if good, ok := u[podName{"", "good"}]; !ok || math.Abs(good.Cores-1.535) > 1e-9 || good.Bytes != 1<<30 || len(u) != 2 {
		t.Errorf("unexpected usage of nodes: %v", u)
	}
	if two, ok := u[podName{"shop", "two"}]; !ok || math.Abs(two.Cores-0.124956789) > 1e-12 || two.Bytes != 24<<20 {
		t.Errorf("unexpected usage of pods: %v", u)
	}
}

// TestUsageThatIsAbsent verifies that the API is queried again only after several minutes if it does not exist or
// access is denied.
func TestUsageThatIsAbsent(t *testing.T) {
	for _, code := range []int{404, 403, 503, 500} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			requests := 0
			there := false
			m, up := asked(t, func(w http.ResponseWriter, r *http.Request) {
				requests++
				if there {
					lists(listOf(), listOf())(w, r)
					return
				}
				w.WriteHeader(code)
			})
			if _, err := m.Usage(t.Context(), everything); err == nil {
				t.Fatal("expected an error")
			}
			n := requests
			*up += time.Minute
			_, err := m.Usage(t.Context(), everything)
			if again := requests > n; again != (code == 500) || err != nil && !again {
				t.Errorf("sent another request: %v, %v", again, err)
			}
			there = true
			*up += askAgain
			if u, err := m.Usage(t.Context(), everything); u == nil || err != nil {
				t.Errorf("after the API is available: %v, %v", u, err)
			}
		})
	}
}

// TestUsageThatIsWrong verifies that invalid responses return errors and that their size is limited.
func TestUsageThatIsWrong(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "list": "[]", "text": `"x"`, "number": "7", "HTML": "<html>",
		"items are an object": `{"items":{}}`,
		"items are a string":  `{"items":"x"}`, "truncated": listOf(item("a", "b", justNow, containers("1")))[:90],
		"item is a list":    `{"items":[[]]}`,
		"usage is a number": `{"items":[{"metadata":{"name":"x"},"usage":{"cpu":7}}]}`,
		"endless item":      `{"items":[{"metadata":{"name":"` + strings.Repeat("x", maxItem+1) + `"}}]}`,
		"endless key":       `{"extra":"` + strings.Repeat("x", maxItem+1) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := asked(t, lists(text, listOf()))
			if u, err := m.Usage(t.Context(), everything); err == nil {
				t.Errorf("%+v", u)
			}
		})
	}
	m, _ := asked(t, lists(`{"items":null}`, `{"unknown":{"a":[1]},"items":[]}`))
	if u, err := m.Usage(t.Context(), everything); err != nil || len(u) != 0 {
		t.Errorf("%v, %v", u, err)
	}
}

func FuzzUsage(f *testing.F) {
	f.Add([]byte(listOf(item("shop", "two", justNow, containers("123456789n", "1500u")))))
	f.Add([]byte(listOf(item("", "n", justNow, `"usage":{"cpu":"1535m"}`))))
	f.Add([]byte(listOf(item("", "n", justNow, `"usage":{"cpu":"1e-9999999"}`))))
	f.Add([]byte(`{"metadata":{"continue":"x"},"items":null,"other":[{}]}`))
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		_ = readList(strings.NewReader(string(text)), func(i *metricsItem) error {
			if cores, ok := i.cores(now); ok && !(cores >= 0 && cores <= maxCores*maxContainers) {
				t.Errorf("got %v cores, want 0 to the maximum", cores)
			}
			return nil
		})
	})
}
