package signal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/controller/dial/dialtest"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// Sources in the table of bad signals.
var (
	fromWattTime = func(url string) v1alpha1.CarbonSource {
		return v1alpha1.CarbonSource{WattTime: &v1alpha1.WattTimeSource{URL: url, Region: "CAISO_NORTH", Key: "wt"}}
	}
	fromPrometheus = func(url string) v1alpha1.CarbonSource {
		return v1alpha1.CarbonSource{Prometheus: &v1alpha1.PrometheusSource{URL: url, Query: "grid"}}
	}
	fromRegion = func(url string) v1alpha1.CarbonSource {
		return v1alpha1.CarbonSource{UKCarbonIntensity: &v1alpha1.UKCarbonIntensitySource{URL: url, Postcode: "RG10"}}
	}
	fromBritain = func(url string) v1alpha1.CarbonSource {
		return v1alpha1.CarbonSource{UKCarbonIntensity: &v1alpha1.UKCarbonIntensitySource{URL: url}}
	}
	fromList = func(url string) v1alpha1.CarbonSource {
		return v1alpha1.CarbonSource{HTTP: &v1alpha1.HTTPSource{
			URL: url, List: "v", ListTime: "0", ListValue: "1", Zone: "zone",
		}}
	}
	fromMap = func(url string) v1alpha1.CarbonSource {
		return v1alpha1.CarbonSource{HTTP: &v1alpha1.HTTPSource{URL: url, Value: "v.ci", Measured: true}}
	}
	// toURL returns a source with the given URL instead of the fake provider's.
	toURL = func(url string) func(string) v1alpha1.CarbonSource {
		return func(string) v1alpha1.CarbonSource { return electricityMapsAt(url) }
	}
	fromFile = func(name string) func(string) v1alpha1.CarbonSource {
		return func(string) v1alpha1.CarbonSource {
			return v1alpha1.CarbonSource{File: &v1alpha1.FileSource{Path: name}}
		}
	}
)

func sampleText(at time.Time, value string) string {
	return fmt.Sprintf(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[%d,%q]}]}}`,
		at.Unix(), value)
}

func regional(from, to time.Time, postcode, intensity string) string {
	const form = "2006-01-02T15:04Z"
	return fmt.Sprintf(`{"data":{"regionid":12,"postcode":%q,"data":[{"from":%q,"to":%q,"intensity":{%s}}]}}`, postcode,
		from.Format(form), to.Format(form), intensity)
}

func marginal(region, units, kind string) http.HandlerFunc {
	return atPath(map[string]http.HandlerFunc{
		"/login": description(`{"token":"t"}`),
		"": description(
			`{"data":[{"point_time":"2026-03-10T12:15:00+00:00","value":900}],"meta":{"region":%q,"signal_type":%q,"units":%q}}`, region, kind, units),
	})
}

// list returns a response with hourly values that start the given number of hours ago.
func list(zone string, hoursAgo int, values ...string) string {
	var entries []string
	for i, v := range values {
		entries = append(entries, fmt.Sprintf("[%d,%s]",
			noon.Truncate(time.Hour).Add(time.Duration(i-hoursAgo)*time.Hour).Unix(), v))
	}
	return fmt.Sprintf(`{"zone":%q,"v":[%s]}`, zone, strings.Join(entries, ","))
}

const testDomain = "10Y1001A1001A82H"

func fromENTSOE(url string) v1alpha1.PriceSource {
	return v1alpha1.PriceSource{ENTSOE: &v1alpha1.ENTSOESource{URL: url, Domain: testDomain, Key: "em"}}
}

// prices returns a handler with the prices of a bidding zone for one day. The arguments are pairs of position and
// price.
func prices(currency, domain string, positions ...int) http.HandlerFunc {
	var points strings.Builder
	for i := 0; i < len(positions); i += 2 {
		fmt.Fprintf(&points, "<Point><position>%d</position><price.amount>%d</price.amount></Point>", positions[i],
			positions[i+1])
	}
	return description(`<Publication_MarketDocument xmlns="urn:x"><TimeSeries><in_Domain.mRID>%s</in_Domain.mRID><currency_Unit.name>%s</currency_Unit.name>
		<price_Measure_Unit.name>MWH</price_Measure_Unit.name><curveType>A03</curveType><Period><timeInterval><start>2026-03-10T00:00Z</start>
		<end>2026-03-11T00:00Z</end></timeInterval><resolution>PT60M</resolution>%s</Period></TimeSeries></Publication_MarketDocument>`, domain, currency, &points)
}

type badSignal struct {
	name   string
	reason dial.Reason
	serve  http.HandlerFunc
	// source returns the source to poll; nil means Electricity Maps.
	source   func(url string) v1alpha1.CarbonSource
	price    func(url string) v1alpha1.PriceSource // used instead of source
	zone     string                                // defaults to DE
	marginal bool
	reach    func(*Reach)
	keys     testKeys
	check    func(t *testing.T, k *Keeper)
}

// badSignals returns responses that must be rejected. The current time is 12:20, and the last valid value is about
// 300 at 12:00.
func badSignals(t *testing.T) []badSignal {
	noonHour := noon.Truncate(time.Hour)
	good := latest("DE", noonHour, "300")
	swap := func(from, to string) http.HandlerFunc {
		if !strings.Contains(good, from) {
			t.Fatalf("%s is not in %s", from, good)
		}
		return description("%s", strings.Replace(good, from, to, 1))
	}
	latestAnd := func(more map[string]http.HandlerFunc) http.HandlerFunc {
		more["/latest"] = description("%s", good)
		return atPath(more)
	}
	still := func() string {
		var rows []string
		for i := range 24 {
			rows = append(rows, latest("DE", noonHour.Add(time.Duration(i-23)*time.Hour), "412"))
		}
		return `{"zone":"DE","history":[` + strings.Join(rows, ",") + `]}`
	}()
	atLeast := func(wait time.Duration) func(*testing.T, *Keeper) {
		return func(t *testing.T, k *Keeper) {
			if got := k.links[0].next.Sub(noon); got < wait {
				t.Errorf("the next poll is after %v, want at least %v", got, wait)
			}
		}
	}
	elsewhere := httptest.NewServer(description("%s", good))
	t.Cleanup(elsewhere.Close)
	untrusted := httptest.NewUnstartedServer(description("%s", good))
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	testFakes.Store(untrusted.Listener.Addr().String(), true)
	t.Cleanup(untrusted.Close)
	outside := filepath.Join(t.TempDir(), "secret.csv")
	if err := os.WriteFile(outside, []byte("t,v\n2026-03-10T12:00Z,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	public := func(r *Reach) { r.Loopback = false }
	hasty := func(r *Reach) {
		quick := r.tweak
		r.tweak = func(f *fetcher) {
			quick(f)
			f.Timeout = 50 * time.Millisecond
		}
	}
	named := func(ip string) func(*Reach) {
		return func(r *Reach) {
			r.Loopback, r.resolver = false, dialtest.Names{"provider.example": {ip}}.Resolver()
		}
	}
	return []badSignal{
		{
			name: "stale by its own timestamp", reason: dial.ReasonStale,
			serve: description("%s", latest("DE", noonHour.Add(-3*time.Hour), "300")),
		},
		{
			name: "sandbox", reason: dial.ReasonKind,
			serve: swap(`"zone"`, `"estimationMethod":"SANDBOX_MODE_DATA","zone"`),
		},
		{
			name: "sandbox, by its disclaimer only", reason: dial.ReasonKind,
			serve: swap(`"zone"`, `"_disclaimer":"This data was requested with a sandbox API key.","zone"`),
		},
		{
			name: "sandbox in the history", reason: dial.ReasonKind, serve: latestAnd(map[string]http.HandlerFunc{
				"/history": description("%s", strings.Replace(still, `"zone"`, `"_disclaimer":"SANDBOX MODE","zone"`, 1)),
			}),
		},
		{
			name: "sandbox in a row of the history", reason: dial.ReasonKind, serve: latestAnd(map[string]http.HandlerFunc{
				"/history": description("%s", strings.Replace(still, `[{`, `[{"estimationMethod":"sandbox_mode_data",`, 1)),
			}),
		},
		{
			name: "sandbox prices", reason: dial.ReasonKind, price: func(url string) v1alpha1.PriceSource {
				return v1alpha1.PriceSource{ElectricityMaps: &v1alpha1.ElectricityMapsSource{URL: url, Key: "em"}}
			},
			serve: description(`{"_disclaimer":"of the sandbox","zone":"DE","data":[]}`),
		},
		{
			name: "sandbox through a generic source", reason: dial.ReasonKind, source: fromMap,
			serve: description(`{"zone":"DE","v":{"ci":300,"estimationMethod":"SANDBOX_MODE_DATA"}}`),
		},
		{
			name: "sandbox disclaimer through a generic source", reason: dial.ReasonKind, source: fromList,
			serve: description("%s", strings.Replace(list("DE", 0, "300"), `"zone"`, `"_disclaimer":"Sandbox","zone"`, 1)),
		},
		{
			name: "stale list", reason: dial.ReasonStale, source: fromList,
			serve: description("%s", list("DE", 9, "300", "310", "320")),
		},
		{name: "stale current forecast", reason: dial.ReasonStale, source: func(url string) v1alpha1.CarbonSource {
			s := fromList(url)
			s.HTTP.Time = "issued"
			return s
		}, serve: description("%s", strings.Replace(list("DE", 1, "300", "310", "320"), "{",
			`{"issued":"2026-03-10T07:00:00Z",`, 1))},
		{
			name: "stale sample", reason: dial.ReasonStale, source: fromPrometheus,
			serve: description("%s", sampleText(noon.Add(-3*time.Hour), "300")),
		},
		{name: "constant for 6 h", reason: dial.ReasonFrozen, serve: atPath(map[string]http.HandlerFunc{
			"/latest": description("%s", latest("DE", noonHour, "412")), "/history": description("%s", still),
		})},
		{
			name: "constant for 24 h, estimated", reason: dial.ReasonFrozen, source: fromList,
			serve: description("%s", list("DE", 24, slices.Repeat([]string{"412"}, 25)...)),
		},
		{name: "NaN", reason: dial.ReasonShape, serve: swap("300", "NaN")},
		{
			name: "NaN in a string, as encoded by Prometheus", reason: dial.ReasonRange, source: fromPrometheus,
			serve: description("%s", sampleText(noon, "NaN")),
		},
		{name: "+Inf", reason: dial.ReasonRange, source: fromPrometheus, serve: description("%s", sampleText(noon, "+Inf"))},
		{name: "-Inf", reason: dial.ReasonRange, source: fromPrometheus, serve: description("%s", sampleText(noon, "-Inf"))},
		{name: "negative", reason: dial.ReasonRange, serve: swap("300", "-1")},
		{name: "1e9", reason: dial.ReasonRange, serve: swap("300", "1e9")},
		{name: "1e999", reason: dial.ReasonRange, serve: swap("300", "1e999")},
		{name: "string", reason: dial.ReasonShape, serve: swap("300", `"300"`)},
		{name: "object", reason: dial.ReasonShape, serve: swap("300", `{"value":300}`)},
		{name: "boolean", reason: dial.ReasonShape, serve: swap("300", "true")},
		{name: "null", reason: dial.ReasonMissing, serve: swap("300", "null")},
		{name: "no value", reason: dial.ReasonMissing, serve: swap(`"carbonIntensity":300,`, "")},
		{
			name: "forecast alone", reason: dial.ReasonMissing, source: fromList,
			serve: description("%s", list("DE", -2, "300", "310")),
		},
		{name: "no values", reason: dial.ReasonMissing, source: fromList, serve: description("%s", list("DE", 0))},
		{name: "1 GiB", reason: dial.ReasonSize, serve: endlessBody(t)},
		{
			name: "too many values", reason: dial.ReasonSize, source: fromList,
			serve: description("%s", list("DE", 0, strings.Split(strings.Repeat("1,", 15_000)+"1", ",")...)),
		},
		{name: "another zone", reason: dial.ReasonZone, serve: swap(`"zone":"DE"`, `"zone":"FR"`)},
		{name: "zone of the caller's address", reason: dial.ReasonZone, serve: callersZone},
		{name: "no zone", reason: dial.ReasonZone, serve: swap(`"zone":"DE",`, "")},
		{name: "zone is null", reason: dial.ReasonZone, serve: swap(`"DE"`, "null")},
		{name: "another zone in the history", reason: dial.ReasonZone, serve: latestAnd(map[string]http.HandlerFunc{
			"/history": description(`{"zone":"DE","history":[%s]}`, latest("DK-DK2", noonHour.Add(-time.Hour), "300")),
		})},
		{
			name: "another zone in a list", reason: dial.ReasonZone, source: fromList,
			serve: description("%s", list("FR", 1, "300", "310")),
		},
		{
			name: "another postcode", reason: dial.ReasonZone, source: fromRegion, zone: "GB",
			serve: description("%s", regional(noonHour, noonHour.Add(30*time.Minute), "SW1", `"forecast":99`)),
		},
		{
			name: "another region", reason: dial.ReasonZone, source: fromWattTime, marginal: true,
			serve: marginal("PJM_DC", "lbs_co2_per_mwh", "co2_moer"),
		},
		{name: "Britain for Germany", reason: dial.ReasonZone, source: fromBritain, serve: description(`{"data":[]}`)},
		{name: "401", reason: dial.ReasonAuth, serve: status(401), check: atLeast(hopelessRetry)},
		{name: "403", reason: dial.ReasonAuth, serve: status(403), check: atLeast(hopelessRetry)},
		{name: "no key", reason: dial.ReasonAuth, keys: testKeys{}, serve: description("%s", good)},
		{name: "429", reason: dial.ReasonRate, serve: status(429)},
		{
			name: "429 with seconds", reason: dial.ReasonRate, serve: status(429, "Retry-After", "2400"),
			check: atLeast(40 * time.Minute),
		},
		{
			name: "429 with a date", reason: dial.ReasonRate,
			serve: status(429, "Retry-After", noon.Add(50*time.Minute).Format(http.TimeFormat)),
			check: atLeast(50 * time.Minute),
		},
		{
			name: "429 for ten years", reason: dial.ReasonRate, serve: status(429, "Retry-After", "315360000"),
			check: func(t *testing.T, k *Keeper) {
				if got := k.links[0].next.Sub(noon); got > 2*dial.MaxWait {
					t.Errorf("the next poll is after %v", got)
				}
			},
		},
		{name: "500", reason: dial.ReasonHTTP, serve: status(500)},
		{
			name: "503 with Retry-After", reason: dial.ReasonHTTP, serve: status(503, "Retry-After", "1800"),
			check: atLeast(30 * time.Minute),
		},
		{name: "404", reason: dial.ReasonHTTP, serve: http.NotFound},
		{name: "204", reason: dial.ReasonHTTP, serve: status(204)},
		{name: "timeout", reason: dial.ReasonHTTP, reach: hasty, serve: func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}},
		{
			name: "body that stalls", reason: dial.ReasonHTTP, reach: hasty,
			serve: func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, good[:20])
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			},
		},
		{name: "connection reset", reason: dial.ReasonHTTP, serve: reset},
		{
			name: "body shorter than Content-Length", reason: dial.ReasonHTTP,
			serve: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "5000")
				_, _ = io.WriteString(w, good)
			},
		},
		{name: "truncated JSON", reason: dial.ReasonShape, serve: description("%s", good[:len(good)-30])},
		{name: "HTML", reason: dial.ReasonShape, serve: description("<html><body>Sign in to the network</body></html>")},
		{name: "empty body", reason: dial.ReasonShape, serve: description("")},
		{name: "two values", reason: dial.ReasonShape, serve: description("%s%s", good, good)},
		{name: "name twice", reason: dial.ReasonShape, serve: swap(`"carbonIntensity":300`,
			`"carbonIntensity":300,"carbonIntensity":100`)},
		{name: "deep nesting", reason: dial.ReasonShape, serve: description("%s", strings.Repeat("[", 100_000))},
		{name: "list for an object", reason: dial.ReasonShape, serve: description("[%s]", good)},
		{
			name: "two series", reason: dial.ReasonShape, source: fromPrometheus,
			serve: description(
				`{"status":"success","data":{"resultType":"vector","result":[{"value":[%d,"1"]},{"value":[%d,"2"]}]}}`,
				noon.Unix(), noon.Unix()),
		},
		{
			name: "no series", reason: dial.ReasonMissing, source: fromPrometheus,
			serve: description(`{"status":"success","data":{"resultType":"vector","result":[]}}`),
		},
		{
			name: "redirect to the metadata service", reason: dial.ReasonAddress,
			serve: status(302, "Location", "http://169.254.169.254/latest/meta-data/"),
		},
		{name: "redirect to another server", reason: dial.ReasonAddress, serve: status(302, "Location", elsewhere.URL)},
		{
			name: "redirect to another scheme", reason: dial.ReasonAddress,
			serve: func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://"+r.Host+r.URL.Path, http.StatusFound)
			},
		},
		{name: "redirect in a circle", reason: dial.ReasonAddress, serve: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
		}},
		{
			name: "redirect on one server", reason: dial.ReasonAddress,
			serve: func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/new") {
					_, _ = io.WriteString(w, good)
					return
				}
				http.Redirect(w, r, "/new"+r.URL.Path, http.StatusPermanentRedirect)
			},
		},
		{name: "metadata service", reason: dial.ReasonAddress, source: toURL("http://169.254.169.254")},
		{
			name: "metadata service, mapped", reason: dial.ReasonAddress,
			source: toURL("http://[::ffff:169.254.169.254]"),
		},
		{
			name: "private address, mapped", reason: dial.ReasonAddress, source: toURL("https://[::ffff:10.0.0.7]"),
			reach: public,
		},
		{name: "loopback", reason: dial.ReasonAddress, source: toURL("https://127.0.0.1:1"), reach: public},
		{
			name: "loopback, private addresses allowed", reason: dial.ReasonAddress,
			source: func(url string) v1alpha1.CarbonSource {
				s := fromPrometheus(url)
				s.Prometheus.AllowPrivateAddress = true
				return s
			}, reach: public,
		},
		{
			name: "name of a private address", reason: dial.ReasonAddress, source: toURL("https://provider.example"),
			reach: named("10.0.0.7"),
		},
		{
			name: "name of the metadata service", reason: dial.ReasonAddress, source: toURL("https://provider.example"),
			reach: named("169.254.169.254"),
		},
		{
			name: "name of loopback", reason: dial.ReasonAddress, source: toURL("https://provider.example"),
			reach: named("127.0.0.1"),
		},
		{name: "without TLS", reason: dial.ReasonAddress, source: toURL("http://provider.example"), reach: public},
		{name: "untrusted certificate", reason: dial.ReasonHTTP, source: toURL(untrusted.URL)},
		{
			name: "from the future", reason: dial.ReasonTime,
			serve: description("%s", latest("DE", noonHour.Add(time.Hour), "300")),
		},
		{name: "no timestamp", reason: dial.ReasonTime, serve: description(`{"zone":"DE","carbonIntensity":300}`)},
		{
			name: "timestamp is garbage", reason: dial.ReasonTime,
			serve: swap(noonHour.Format("2006-01-02T15"), "yesterday"),
		},
		{
			name: "timestamp is a number", reason: dial.ReasonTime,
			serve: description(`{"zone":"DE","carbonIntensity":300,"datetime":12}`),
		},
		{
			name: "microseconds for seconds", reason: dial.ReasonTime, source: fromList,
			serve: description(`{"zone":"DE","v":[[%d,300]]}`, noonHour.UnixMicro()),
		},
		{
			name: "repeated hour at the end of daylight saving time", reason: dial.ReasonTime, source: fromList,
			serve: description(`{"zone":"DE","v":[[%[1]d,300],[%[1]d,310],[%[2]d,320]]}`, noonHour.Add(-time.Hour).Unix(),
				noonHour.Unix()),
		},
		{
			name: "off the grid", reason: dial.ReasonTime, source: fromList,
			serve: description(`{"zone":"DE","v":[[%d,300],[%d,310],[%d,320]]}`, noonHour.Add(-2*time.Hour).Unix(),
				noonHour.Add(-time.Hour).Unix(), noonHour.Add(100*time.Second).Unix()),
		},
		{
			name: "slot of an hour", reason: dial.ReasonTime, source: fromRegion, zone: "GB",
			serve: description("%s", regional(noonHour, noonHour.Add(time.Hour), "RG10", `"forecast":99`)),
		},
		{
			name: "neither forecast nor actual", reason: dial.ReasonMissing, source: fromRegion, zone: "GB",
			serve: description("%s", regional(noonHour, noonHour.Add(30*time.Minute), "RG10", `"forecast":null`)),
		},
		{name: "unit of another quantity", reason: dial.ReasonUnit, source: func(url string) v1alpha1.CarbonSource {
			return v1alpha1.CarbonSource{HTTP: &v1alpha1.HTTPSource{URL: url, Value: "v", Unit: "per-MWh"}}
		}, serve: description(`{"v":300}`)},
		{
			name: "unit of another scale", reason: dial.ReasonUnit, source: fromWattTime, marginal: true,
			serve: marginal("CAISO_NORTH", "kg_co2_per_mwh", "co2_moer"),
		},
		{
			name: "explicit unit", reason: dial.ReasonUnit,
			serve: swap(`"carbonIntensity"`, `"unit":"lbCO2/MWh","carbonIntensity"`),
		},
		{
			name: "marginal for average", reason: dial.ReasonKind, source: fromWattTime,
			serve: marginal("CAISO_NORTH", "lbs_co2_per_mwh", "co2_moer"),
		},
		{name: "average for marginal", reason: dial.ReasonKind, marginal: true, serve: description("%s", good)},
		{
			name: "health damage for carbon", reason: dial.ReasonKind, source: fromWattTime, marginal: true,
			serve: marginal("CAISO_NORTH", "lbs_co2_per_mwh", "health_damage"),
		},
		{name: "direct for lifecycle", reason: dial.ReasonKind, serve: swap("lifecycle", "direct")},
		{
			name: "position beyond the period", reason: dial.ReasonTime, price: fromENTSOE,
			serve: prices("EUR", testDomain, 1, 81, 25, 90),
		},
		{
			name: "position twice", reason: dial.ReasonTime, price: fromENTSOE,
			serve: prices("EUR", testDomain, 1, 81, 1, 90),
		},
		{
			name: "positions backwards", reason: dial.ReasonTime, price: fromENTSOE,
			serve: prices("EUR", testDomain, 1, 81, 9, 90, 4, 70),
		},
		{
			name: "first position missing", reason: dial.ReasonShape, price: fromENTSOE,
			serve: prices("EUR", testDomain, 2, 81),
		},
		{
			name: "another bidding zone", reason: dial.ReasonZone, price: fromENTSOE,
			serve: prices("EUR", "10YNL----------L", 1, 81),
		},
		{name: "another currency", reason: dial.ReasonUnit, price: fromENTSOE, serve: prices("PLN", testDomain, 1, 81)},
		{
			name: "price beyond any", reason: dial.ReasonRange, price: fromENTSOE,
			serve: prices("EUR", testDomain, 1, 90_000),
		},
		{
			name: "no prices yet", reason: dial.ReasonMissing, price: fromENTSOE,
			serve: description("<Acknowledgement_MarketDocument><Reason><code>999</code><text>No matching " +
				"data</text></Reason></Acknowledgement_MarketDocument>"),
		},
		{
			name: "truncated XML", reason: dial.ReasonShape, price: fromENTSOE,
			serve: description("<Publication_MarketDocument><TimeSeries>"),
		},
		{name: "price in another currency", reason: dial.ReasonUnit, price: func(url string) v1alpha1.PriceSource {
			return v1alpha1.PriceSource{ElectricityMaps: &v1alpha1.ElectricityMapsSource{URL: url}}
		}, serve: description(`{"zone":"DE","data":[{"datetime":"2026-03-10T12:00:00Z","value":81,"unit":"USD/MWh"}]}`)},
		{
			name: "link to a file outside", reason: dial.ReasonAddress, source: fromFile("link.csv"),
			check: func(t *testing.T, k *Keeper) {
				if strings.Contains(k.links[0].err.Error(), outside) {
					t.Error("the error contains the target of the link")
				}
			}, serve: func(http.ResponseWriter, *http.Request) {}, reach: func(*Reach) {},
			keys: testKeys{"link": outside},
		},
		{name: "missing file", reason: dial.ReasonMissing, source: fromFile("absent.csv")},
		{name: "file of another zone", reason: dial.ReasonZone, source: fromFile("fr.csv")},
		{name: "file with NaN", reason: dial.ReasonShape, source: fromFile("nan.csv")},
		{name: "file without current values", reason: dial.ReasonMissing, source: fromFile("ended.csv")},
		{name: "file of another year", reason: dial.ReasonMissing, source: fromFile("old.csv")},
	}
}

// callersZone responds like a provider that replaces an unknown zone by the zone of the caller's IP address.
func callersZone(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("disableCallerLookup") != "true" || q.Get("shouldUseFallbackCallerLookup") != "false" {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	_, _ = io.WriteString(w, latest("DK-DK2", noon.Truncate(time.Hour), "300"))
}

func reset(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

// endlessBody sends a body of 1 GiB, and fails the test if most of it is read.
func endlessBody(t *testing.T) http.HandlerFunc {
	var taken atomic.Int64
	t.Cleanup(func() {
		if got := taken.Load(); got == 0 || got > 64<<20 {
			t.Errorf("%d bytes of the endless response were read", got)
		}
	})
	return func(w http.ResponseWriter, _ *http.Request) {
		chunk := bytes.Repeat([]byte(" "), 1<<16)
		for range 1 << 14 {
			n, err := w.Write(chunk)
			taken.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
}

// TestBadSignals verifies that each bad signal is rejected with the expected reason and counted, and that the last
// valid status remains in use until it is too old.
func TestBadSignals(t *testing.T) {
	rows := badSignals(t)
	if len(rows) < 40 {
		t.Fatalf("%d rows", len(rows))
	}
	// Reasons are label values. The table must cover all of them and no others.
	reasons := make(map[dial.Reason]bool)
	for _, c := range rows {
		reasons[c.reason] = true
	}
	all := []dial.Reason{
		dial.ReasonZone, dial.ReasonStale, dial.ReasonFrozen, dial.ReasonRange, dial.ReasonShape, dial.ReasonUnit,
		dial.ReasonKind, dial.ReasonAuth, dial.ReasonRate,
		dial.ReasonHTTP, dial.ReasonSize,
		dial.ReasonAddress, dial.ReasonTime, dial.ReasonMissing,
	}
	for _, r := range all {
		if !reasons[r] {
			t.Errorf("no signal is rejected for reason %q", r)
		}
	}
	if len(reasons) != len(all) {
		t.Errorf("%d reasons, want %d", len(reasons), len(all))
	}
	folder := t.TempDir()
	for name, text := range map[string]string{
		"fr.csv":    "t,zone,v\n2026-03-10T12:00Z,FR,1\n",
		"nan.csv":   "t,v\n2026-03-10T12:00Z,NaN\n",
		"old.csv":   "t,v\n2024-03-10T12:00Z,1\n2024-03-10T13:00Z,2\n",
		"ended.csv": "t,v\n2026-03-10T08:00Z,1\n2026-03-10T09:00Z,2\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) {
			now := noon
			serve := c.serve
			if serve == nil {
				serve = func(http.ResponseWriter, *http.Request) { t.Error("unexpected request to the fake provider") }
			}
			p := newProvider(t, serve)
			d := testDeps(&now)
			d.Data = folder
			if target := c.keys["link"]; target != "" {
				if err := os.Symlink(target, filepath.Join(folder, "link.csv")); err != nil {
					t.Skip("symbolic links are not supported")
				}
			}
			if c.keys != nil {
				d.Keys = c.keys
			}
			if c.reach != nil {
				c.reach(&d.Reach)
			}
			source, zone, kind := electricityMapsAt, "DE", "Average"
			if c.source != nil {
				source = c.source
			}
			if c.zone != "" {
				zone = c.zone
			}
			if c.marginal {
				kind = "Marginal"
			}
			age := &metav1.Duration{Duration: 2 * time.Hour}
			k, err := NewCarbonKeeper(grid.Zone(zone),
				&v1alpha1.CarbonSpec{Signal: kind, MaxAge: age, Sources: []v1alpha1.CarbonSource{source(p.URL)}}, d)
			if c.price != nil {
				k, err = NewPriceKeeper(grid.Zone(zone),
					&v1alpha1.PriceSpec{Currency: "EUR", MaxAge: age, Sources: []v1alpha1.PriceSource{c.price(p.URL)}},
					d)
			}
			if err != nil {
				t.Fatal(err)
			}
			refusesAndRemembers(t, k, d, &now, c.reason)
			if c.check != nil {
				c.check(t, k)
			}
		})
	}
}

// refusesAndRemembers polls the only source of a keeper, and verifies the reason of the rejection and the use of
// the last valid status.
func refusesAndRemembers(t *testing.T, k *Keeper, d Deps, now *time.Time, reason dial.Reason) {
	t.Helper()
	asOf := now.Truncate(time.Hour)
	of := metav1.NewTime(asOf)
	link := k.links[0]
	link.status = &v1alpha1.SignalStatus{
		Start: of, Step: metav1.Duration{Duration: time.Hour}, Values: []float64{301, 302, 303, 304}, AsOf: &of,
		Quality: "measured", ForecastSource: "x",
	}
	link.issued = asOf
	k.poll(context.Background())
	state := k.state(*now)
	if state.Reason != reason {
		t.Errorf("rejected with reason %q (%s), want %q", state.Reason, state.LastError, reason)
	}
	if !state.Fresh || state.Signal.Series.At(*now) != 301 || !state.Signal.AsOf.Equal(asOf) {
		t.Errorf("the last valid status is not used: %+v", state)
	}
	counted := testutil.ToFloat64(d.Metrics.rejected.WithLabelValues(string(k.terms.zone), string(k.terms.quantity),
		link.name, string(reason)))
	if counted != 1 || testutil.CollectAndCount(d.Metrics.rejected) != 1 {
		t.Errorf("rejection counted %v times for %q in %d series", counted, reason,
			testutil.CollectAndCount(d.Metrics.rejected))
	}
	if text := state.LastError; strings.Contains(text, "sesame") || strings.Contains(text, "baba") {
		t.Errorf("the error contains the key: %s", text)
	}
	if at := asOf.Add(k.terms.maxAge); !k.state(at).Fresh {
		t.Error("the last valid status expired too early")
	}
	if at := asOf.Add(k.terms.maxAge + time.Second); k.state(at).Fresh {
		t.Error("the last valid status has not expired")
	}
}

// TestOmittedPositions verifies that positions omitted because of an unchanged price are not gaps.
func TestOmittedPositions(t *testing.T) {
	now := noon
	p := newProvider(t, prices("EUR", testDomain, 1, 81, 9, 90, 15, -4))
	k, err := NewPriceKeeper("DE", &v1alpha1.PriceSpec{
		Currency: "EUR", Sources: []v1alpha1.PriceSource{fromENTSOE(p.URL)},
	}, testDeps(&now))
	if err != nil {
		t.Fatal(err)
	}
	k.poll(context.Background())
	s := k.state(now)
	if !s.Fresh {
		t.Fatal(s.LastError)
	}
	for hours, want := range map[int]float64{0: 0.09, 1: 0.09, 2: -0.004, 11: -0.004} {
		if got := s.Signal.Series.At(now.Add(time.Duration(hours) * time.Hour)); got != want {
			t.Errorf("price in %d hours = %v, want %v", hours, got, want)
		}
	}
}
