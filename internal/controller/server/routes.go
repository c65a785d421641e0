package server

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// route describes a route: its documentation, required permissions, parameters and handler.
type route struct {
	method, path string
	about        string
	rights       string // description of the required permissions
	// may returns the permissions that the caller needs. If there are none, a valid token is sufficient.
	may     func(*http.Request) []access.Attributes
	own     bool // the handler authenticates callers itself
	query   []parameter
	body    *body
	answers any // a value of the response type; nil for an empty body
	status  int // status of success; 0 means 200
	formats []string
	timeout time.Duration // 0 means 30 s
	serve   handler
}

type handler func(s *server, w http.ResponseWriter, r *http.Request, q *query) error

// body describes the request body of a route.
type body struct {
	media   string
	about   string
	most    int64 // maximum size in bytes, before decompression
	example string
	schema  any
}

const usualPatience = 30 * time.Second

// group is the API group of the resources that permissions refer to. Objects of these resources are never stored.
// They only exist so that roles can grant access to them.
const group = "kubenergy.io"

// Resources in permissions.
const (
	resourceEnergy     = "energy"     // energy usage of pods and Jobs in a namespace, and decisions about them
	resourceNodeEnergy = "nodeenergy" // power of nodes and the cluster, and grid zones
	resourceRecords    = "records"    // decisions that a scheduler reports
	resourceMetrics    = "metrics"    // metrics of a node that a sidecar reports
	resourceClusters   = "clusters"   // clusters of a federation; their bookings are the subresource bookings
)

func clusterWide(verb, resource string) func(*http.Request) []access.Attributes {
	return func(*http.Request) []access.Attributes {
		return []access.Attributes{{Verb: verb, Group: group, Resource: resource}}
	}
}

// inNamespace requires a permission in the namespace of the path.
func inNamespace(verb string) func(*http.Request) []access.Attributes {
	return func(r *http.Request) []access.Attributes {
		return []access.Attributes{{
			Verb: verb, Group: group, Resource: resourceEnergy,
			Namespace: valid(r.PathValue("namespace"), isNamespace), Name: valid(r.PathValue("pod"), isPod),
		}}
	}
}

// valid returns name if it is valid, otherwise an empty string, which requires permission for all objects. An
// invalid name must not reach an authorizer, because its interpretation is undefined.
func valid(name string, is func(string) bool) string {
	if is(name) {
		return name
	}
	return ""
}

func isNode(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

func isNamespace(name string) bool { return len(validation.IsDNS1123Label(name)) == 0 }

// sidecarOf requires permission to report metrics of the node in the query, or of all nodes if the query has none.
func sidecarOf(r *http.Request) []access.Attributes {
	return []access.Attributes{{
		Verb: "create", Group: group, Resource: resourceMetrics, Name: valid(r.URL.Query().Get("node"), isNode),
	}}
}

// bookingsOf requires permission to forward bookings of the cluster in the path, or of all clusters if its name is
// invalid.
func bookingsOf(r *http.Request) []access.Attributes {
	return []access.Attributes{{
		Verb: "create", Group: group, Resource: resourceClusters, Subresource: "bookings",
		Name: valid(r.PathValue("cluster"), isNamespace),
	}}
}

const (
	everywhereRight = "list energy"
	namespaceRight  = "list energy in the namespace"
	nodesRight      = "list nodeenergy"
	snapshotsRight  = "; with `snapshots` also " + nodesRight
)

const (
	maxBatch    = 2 * batch.MaxBytes // of an uncompressed batch, with a margin; its handler enforces the exact limit
	maxRecords  = 4 << 20
	maxJobBody  = 64 << 10
	maxSidecar  = 4 << 20
	maxBookings = 4 << 20
	auditWithin = 2 * time.Minute

	forwardWithin = time.Minute
)

// routes returns all routes of the server.
func routes() []route {
	all := slices.Concat(nowRoutes(), ledgerRoutes(), decisionRoutes(), writingRoutes())
	for _, path := range []string{"/api/v1/openapi.json", "/openapi/v3.json"} {
		all = append(all, route{
			method: http.MethodGet, path: path, about: "This interface as an OpenAPI 3 document.",
			rights: "none but to be somebody", may: nothing, answers: map[string]any{}, serve: (*server).serveOpenAPI,
		})
	}
	return all
}

// ofNodes returns a route with data of all nodes.
func ofNodes(path, about string, answers any, serve handler) route {
	return route{
		method: http.MethodGet, path: path, about: about, rights: nodesRight,
		may: clusterWide("list", resourceNodeEnergy), answers: answers, serve: serve,
	}
}

// ofEnergy returns a route with data of pods and Jobs in all namespaces.
func ofEnergy(path, about string, query []parameter, answers any, serve handler) route {
	return route{
		method: http.MethodGet, path: path, about: about, rights: everywhereRight,
		may: clusterWide("list", resourceEnergy), query: query, answers: answers, serve: serve,
	}
}

// andOfNamespace returns a cluster-wide route and its variant for a single namespace.
func andOfNamespace(rt route, about string) []route {
	own := rt
	own.path, own.about = strings.Replace(rt.path, "/api/v1/", "/api/v1/namespaces/{namespace}/", 1), about
	own.query = slices.DeleteFunc(slices.Clone(rt.query), func(p parameter) bool { return p.name == "namespace" })
	own.rights, own.may = strings.Replace(rt.rights, everywhereRight, namespaceRight, 1), inNamespace("list")
	return []route{rt, own}
}

const sameOfNamespace = "The same of a namespace."

func nowRoutes() []route {
	temperatures := ofNodes("/api/v1/nodes/temperature",
		"Mean and maximum of nodes' temperatures, hour by hour, as their agents told: of the hottest sensor of CPUs "+
			"and GPUs.", api.NodesTemperature{}, (*server).serveNodesTemperature)
	temperatures.query = append(span(),
		parameter{name: "node", about: "only of this one", kind: kindText, example: "worker1"})
	all := []route{
		ofNodes("/api/v1/nodes",
			"All nodes: where they are, what they are modelled as, what is requested of them, and "+
				"what they draw.", Nodes{}, (*server).serveNodes),
		ofNodes("/api/v1/nodes/power",
			"What nodes draw now. Ask with If-None-Match. What is older than 45 s by asOf is "+
				"not to be decided by.", api.NodesPower{}, (*server).serveNodesPower),
		temperatures,
		ofNodes("/api/v1/workloads/power", "What one pod of each owner draws, smoothed. Ask with If-None-Match.",
			api.WorkloadsPower{}, (*server).serveWorkloadsPower),
	}
	all = append(all, andOfNamespace(ofEnergy("/api/v1/pods", "What pods draw now.",
		[]parameter{{name: "namespace", about: "only of this one", kind: kindText, example: "shop"}}, api.PodsPower{},
		(*server).servePods), "What pods of a namespace draw now.")...)
	return append(all, route{
		method: http.MethodGet, path: "/api/v1/namespaces/{namespace}/pods/{pod}/power",
		rights: "get energy in the namespace", may: inNamespace("get"),
		about: "What a pod, by name or UID, has drawn over time.",
		query: append(span(), parameter{
			name: "samples", about: "at most so many points", kind: kindWhole,
			otherwise: "500, which is the most; 2 at least", example: "100",
		}, parameter{
			name: "downsample", about: "how they are chosen: as the eye sees them, means of equal times, or extremes",
			kind: kindText, among: []string{"lttb", "timeBased", "minMax"}, otherwise: "lttb",
			example: "minMax",
		}),
		answers: PodPower{}, serve: (*server).servePodPower,
	},
		ofNodes("/api/v1/zones",
			"Carbon intensity and price of all GridZones, now and as forecast, with source, age and "+
				"quality.", Zones{}, (*server).serveZones))
}

// span returns the parameters of a time range.
func span() []parameter {
	return []parameter{
		{
			name: "from", about: "RFC 3339, a day, or how long ago as -24h or -7d", kind: kindTime,
			otherwise: "a day before to", example: "-24h",
		},
		{name: "to", about: "the same", kind: kindTime, otherwise: "now", example: "now"},
	}
}

func only(name, about, example string) parameter {
	return parameter{name: name, about: about, kind: kindText, many: true, example: example}
}

var ofNamespaces = only("namespace", "only of these", "shop")

func limited(otherwise, most string) parameter {
	return parameter{
		name: "limit", about: "at most so many rows, " + most, kind: kindWhole, otherwise: otherwise, example: "10",
	}
}

func ledgerRoutes() []route {
	sums := ofEnergy("/api/v1/ledger",
		"Sums of energy, carbon and cost over a time range, by any dimensions. Filters of "+
			"one name are alternatives, those of several names all hold.", append(span(),
			parameter{
				name: "groupBy", about: "dimensions, in the order of the key: " + listed(ledger.Dimensions()) +
					"; commas separate, too",
				kind: kindText, many: true, otherwise: "one sum", example: "namespace,day",
			},
			ofNamespaces,
			only("kind", "kind of account: "+listed(slices.Collect(ledger.Kinds())), "workload"),
			only("owner", "kind/name", "Job/train"),
			only("pod", "name, namespace/name or UID", "train-x7k2p"),
			only("node", "name of a node", "worker1"),
			only("team", "team that is charged", "research"),
			only("strategy", "that placed it", "carbon+window"),
			only("site", "name of a GridZone", "de"),
			only("cluster", "that forwarded it, or the name of this one; a dot is this one, too", "alpha"),
			limited("10000", "100,000 or what is configured; the rest is one row"),
			parameter{
				name: "format", about: "as the Accept header would say", kind: kindText, among: formats,
				otherwise: "json", example: "csv",
			},
		), ledger.Answer{}, (*server).serveLedger)
	sums.formats = formats
	audit := ofEnergy("/api/v1/ledger/audit", "Compare what was booked by consumer with what was booked by node, and "+
		"check sums of bytes. One at a time.", []parameter{{
		name: "from", about: "since when: RFC 3339, a day, or as -24h", kind: kindTime, otherwise: "a day ago",
		example: "-1h",
	}}, Audit{}, (*server).serveAudit)
	audit.timeout = auditWithin
	all := andOfNamespace(ofEnergy("/api/v1/jobs", "Energy, carbon and cost of Jobs over a time range.", append(span(),
		only("owner", "name of a Job", "train"), only("strategy", "that placed it", "carbon+window"), ofNamespaces,
		limited("1000", "10,000: those that used most")), Jobs{}, (*server).serveJobs), sameOfNamespace)
	all = append(all, andOfNamespace(sums, sameOfNamespace)...)
	return append(all, ofEnergy("/api/v1/ledger/statistics", "How much the ledger holds.", nil, ledger.Statistics{},
		(*server).serveStatistics), audit)
}

func decisionRoutes() []route {
	decisions := ofEnergy("/api/v1/decisions",
		"Decisions, the youngest first. For more, ask again with to as the at of "+
			"the last one.", append(span(),
			parameter{name: "owner", about: "kind/name", kind: kindText, example: "Job/train"},
			parameter{
				name: "uid", about: "of the pod, or of the Job that is held", kind: kindText,
				example: "6b0d7f8e-4c1f-4a57-9c55-1f0b6d2a7e11",
			},
			only("strategy", "that decided", "carbon+window"),
			parameter{
				name:  "snapshots",
				about: "with what each depended on: that tells of all nodes, and needs list nodeenergy", kind: kindFlag,
				otherwise: "false", example: "true",
			},
			limited("1000", "10,000, with snapshots 200; the youngest"), ofNamespaces,
		), api.Decisions{}, (*server).serveDecisions)
	decisions.rights += snapshotsRight
	return append(andOfNamespace(decisions, sameOfNamespace), route{
		method: http.MethodPost, path: "/api/v1/decisions", rights: "create records",
		may: clusterWide("create", resourceRecords),
		about: "Tell what was decided, as the scheduler does. The same ID again is the same decision. At most " +
			"256, or an array of them.",
		body: &body{
			media: contentJSON, about: "gzip or not; 4 MiB at most, also unpacked", most: maxRecords,
			schema: api.Decisions{}, example: `{"decisions":[]}`,
		},
		status: http.StatusNoContent, serve: (*server).postDecisions,
	})
}

func writingRoutes() []route {
	return []route{
		{
			method: http.MethodPost, path: "/api/v1/batches", rights: "the token of the agent of the node", own: true,
			about: "What an agent sends: see protocol.md.",
			body: &body{
				media: contentJSON, about: "gzip or not", most: maxBatch, schema: batch.Batch{}, example: `{}`,
			}, answers: batch.Ack{},
		},
		{
			method: http.MethodPost, path: "/api/v1/clusters/{cluster}/bookings",
			rights: "create clusters/bookings, of the cluster", may: bookingsOf,
			about: "What another cluster of the federation has booked: see protocol.md.",
			body: &body{
				media: "application/x-ndjson", about: "gzip; at most 256 lines, and 32 MiB unpacked", most: maxBookings,
				example: "{}\n",
			},
			answers: api.Forwarded{}, timeout: forwardWithin,
			serve: func(s *server, w http.ResponseWriter, r *http.Request, _ *query) error {
				s.Bookings.ServeHTTP(w, r)
				return nil
			},
		},
		{
			method: http.MethodPost, path: "/ingest", rights: "create jobs.batch in the namespace", may: nothing,
			about: "A job in, a Kubernetes Job out, as KubEnergySched's central unit takes it.",
			body: &body{
				media: contentJSON, about: "64 KiB at most", most: maxJobBody, schema: submissionFields{},
				example: `{"ID":"job-1","CPURequirement":2,"EnergyPriority":0.8}`,
			},
			answers: Submitted{}, status: http.StatusCreated, serve: (*server).postJob,
		},
		{
			method: http.MethodPost, path: "/metrics-ingest", rights: "create metrics, of the node that is named",
			may:   sidecarOf,
			about: "Metrics of a Scaphandre sidecar, as KubEnergySched's central unit takes them.",
			query: []parameter{{
				name: "node", about: "whose they are", kind: kindText,
				otherwise: "that of the token, else as labels say", example: "worker1",
			}},
			body: &body{
				media: "text/plain", about: "in Prometheus' text format; 4 MiB at most", most: maxSidecar,
				example: "scaph_host_energy_microjoules{instance=\"worker1\"} 240422366267\n",
			},
			answers: SidecarAnswer{}, serve: (*server).postMetrics,
		},
	}
}
