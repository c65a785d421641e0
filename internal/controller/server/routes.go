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

// route is an HTTP endpoint with its documentation, required permissions, parameters and handler.
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
			method: http.MethodGet, path: path, about: "OpenAPI 3 document of this interface.",
			rights: "any valid token", may: nothing, answers: map[string]any{}, serve: (*server).serveOpenAPI,
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

const sameOfNamespace = "The same for a single namespace."

func nowRoutes() []route {
	temperatures := ofNodes("/api/v1/nodes/temperature",
		"Hourly mean and maximum temperature of nodes, as reported by their agents: of the hottest sensor of CPUs "+
			"and GPUs.", api.NodesTemperature{}, (*server).serveNodesTemperature)
	temperatures.query = append(span(),
		parameter{name: "node", about: "only this node", kind: kindText, example: "worker1"})
	all := []route{
		ofNodes("/api/v1/nodes",
			"All nodes with their location, power profile, requested resources and "+
				"current power.", Nodes{}, (*server).serveNodes),
		ofNodes("/api/v1/nodes/power",
			"Current power of nodes. Supports If-None-Match. Readings with an asOf older than 45 s "+
				"must not be used for decisions.", api.NodesPower{}, (*server).serveNodesPower),
		temperatures,
		ofNodes("/api/v1/workloads/power", "Smoothed power of one pod of each owner. Supports If-None-Match.",
			api.WorkloadsPower{}, (*server).serveWorkloadsPower),
	}
	all = append(all, andOfNamespace(ofEnergy("/api/v1/pods", "Current power of pods.",
		[]parameter{{name: "namespace", about: "only this namespace", kind: kindText, example: "shop"}},
		api.PodsPower{}, (*server).servePods), "Current power of the pods of a namespace.")...)
	return append(all, route{
		method: http.MethodGet, path: "/api/v1/namespaces/{namespace}/pods/{pod}/power",
		rights: "get energy in the namespace", may: inNamespace("get"),
		about: "Power of a pod over time, by its name or UID.",
		query: append(span(), parameter{
			name: "samples", about: "maximum number of points", kind: kindWhole,
			otherwise: "500; the minimum is 2 and the maximum is 500", example: "100",
		}, parameter{
			name: "downsample", about: "downsampling method: visual similarity, means of equal intervals, or extremes",
			kind: kindText, among: []string{"lttb", "timeBased", "minMax"}, otherwise: "lttb",
			example: "minMax",
		}),
		answers: PodPower{}, serve: (*server).servePodPower,
	},
		ofNodes("/api/v1/zones",
			"Current and forecast carbon intensity and price of all GridZones, with source, age and "+
				"quality.", Zones{}, (*server).serveZones))
}

// span returns the parameters of a time range.
func span() []parameter {
	return []parameter{
		{
			name: "from", about: "start: RFC 3339, a date, or an offset such as -24h or -7d", kind: kindTime,
			otherwise: "one day before to", example: "-24h",
		},
		{name: "to", about: "end, in the same format", kind: kindTime, otherwise: "now", example: "now"},
	}
}

func only(name, about, example string) parameter {
	return parameter{name: name, about: about, kind: kindText, many: true, example: example}
}

var ofNamespaces = only("namespace", "only these namespaces", "shop")

func limited(otherwise, most string) parameter {
	return parameter{
		name: "limit", about: "maximum number of rows, at most " + most, kind: kindWhole, otherwise: otherwise,
		example: "10",
	}
}

func ledgerRoutes() []route {
	sums := ofEnergy("/api/v1/ledger",
		"Sums of energy, carbon and cost over a time range, by any dimensions. Filters with "+
			"the same name are alternatives; filters with different names are combined.", append(span(),
			parameter{
				name: "groupBy", about: "dimensions in the order of the key: " + listed(ledger.Dimensions()) +
					"; may also be separated by commas",
				kind: kindText, many: true, otherwise: "a single sum", example: "namespace,day",
			},
			ofNamespaces,
			only("kind", "kind of account: "+listed(slices.Collect(ledger.Kinds())), "workload"),
			only("owner", "kind/name", "Job/train"),
			only("pod", "name, namespace/name or UID", "train-x7k2p"),
			only("node", "name of a node", "worker1"),
			only("team", "team that is charged", "research"),
			only("strategy", "strategy that placed the pod", "carbon+window"),
			only("site", "name of a GridZone", "de"),
			only("cluster", "cluster that forwarded the booking; this cluster is given by its name or a dot", "alpha"),
			limited("10000", "100,000 or the configured limit; omitted rows are added up in one row"),
			parameter{
				name: "format", about: "response format; overrides the Accept header", kind: kindText, among: formats,
				otherwise: "json", example: "csv",
			},
		), ledger.Answer{}, (*server).serveLedger)
	sums.formats = formats
	audit := ofEnergy("/api/v1/ledger/audit", "Compare the bookings of consumers with the bookings of nodes, and "+
		"verify checksums. Only one audit runs at a time.", []parameter{{
		name: "from", about: "start: RFC 3339, a date, or an offset such as -24h", kind: kindTime,
		otherwise: "one day ago", example: "-1h",
	}}, Audit{}, (*server).serveAudit)
	audit.timeout = auditWithin
	all := andOfNamespace(ofEnergy("/api/v1/jobs", "Energy, carbon and cost of Jobs over a time range.", append(span(),
		only("owner", "name of a Job", "train"), only("strategy", "strategy that placed the pod", "carbon+window"),
		ofNamespaces, limited("1000", "10,000; the largest consumers")), Jobs{}, (*server).serveJobs), sameOfNamespace)
	all = append(all, andOfNamespace(sums, sameOfNamespace)...)
	return append(all, ofEnergy("/api/v1/ledger/statistics", "Statistics about the contents of the ledger.", nil,
		ledger.Statistics{}, (*server).serveStatistics), audit)
}

func decisionRoutes() []route {
	decisions := ofEnergy("/api/v1/decisions",
		"Decisions, the most recent first. For more, repeat the request with `to` set to the `at` of "+
			"the last decision.", append(span(),
			parameter{name: "owner", about: "kind/name", kind: kindText, example: "Job/train"},
			parameter{
				name: "uid", about: "UID of the pod, or of the held Job", kind: kindText,
				example: "6b0d7f8e-4c1f-4a57-9c55-1f0b6d2a7e11",
			},
			only("strategy", "strategy of the decision", "carbon+window"),
			parameter{
				name:  "snapshots",
				about: "include the input of each decision: it contains all nodes and requires list nodeenergy",
				kind:  kindFlag, otherwise: "false", example: "true",
			},
			limited("1000", "10,000, or 200 with snapshots; the most recent ones"), ofNamespaces,
		), api.Decisions{}, (*server).serveDecisions)
	decisions.rights += snapshotsRight
	return append(andOfNamespace(decisions, sameOfNamespace), route{
		method: http.MethodPost, path: "/api/v1/decisions", rights: "create records",
		may: clusterWide("create", resourceRecords),
		about: "Report decisions, as the scheduler does. A decision with an existing ID is ignored. At most " +
			"256 decisions, in an object or as an array.",
		body: &body{
			media: contentJSON, about: "optionally compressed with gzip; at most 4 MiB, also after decompression",
			most: maxRecords, schema: api.Decisions{}, example: `{"decisions":[]}`,
		},
		status: http.StatusNoContent, serve: (*server).postDecisions,
	})
}

func writingRoutes() []route {
	return []route{
		{
			method: http.MethodPost, path: "/api/v1/batches", rights: "the token of the node's agent", own: true,
			about: "Batches of an agent; see protocol.md.",
			body: &body{
				media: contentJSON, about: "optionally compressed with gzip", most: maxBatch, schema: batch.Batch{},
				example: `{}`,
			}, answers: batch.Ack{},
		},
		{
			method: http.MethodPost, path: "/api/v1/clusters/{cluster}/bookings",
			rights: "create clusters/bookings for the cluster", may: bookingsOf,
			about: "Bookings of another cluster of the federation; see protocol.md.",
			body: &body{
				media: "application/x-ndjson", about: "gzip; at most 256 lines and 32 MiB after decompression",
				most: maxBookings, example: "{}\n",
			},
			answers: api.Forwarded{}, timeout: forwardWithin,
			serve: func(s *server, w http.ResponseWriter, r *http.Request, _ *query) error {
				s.Bookings.ServeHTTP(w, r)
				return nil
			},
		},
		{
			method: http.MethodPost, path: "/ingest", rights: "create jobs.batch in the namespace", may: nothing,
			about: "Create a Kubernetes Job from a job in the format of KubEnergySched's central unit.",
			body: &body{
				media: contentJSON, about: "at most 64 KiB", most: maxJobBody, schema: submissionFields{},
				example: `{"ID":"job-1","CPURequirement":2,"EnergyPriority":0.8}`,
			},
			answers: Submitted{}, status: http.StatusCreated, serve: (*server).postJob,
		},
		{
			method: http.MethodPost, path: "/metrics-ingest", rights: "create metrics for the node",
			may:   sidecarOf,
			about: "Report metrics of a Scaphandre sidecar in the format of KubEnergySched's central unit.",
			query: []parameter{{
				name: "node", about: "node of the metrics", kind: kindText,
				otherwise: "the node of the token, otherwise derived from labels", example: "worker1",
			}},
			body: &body{
				media: "text/plain", about: "Prometheus text format; at most 4 MiB", most: maxSidecar,
				example: "scaph_host_energy_microjoules{instance=\"worker1\"} 240422366267\n",
			},
			answers: SidecarAnswer{}, serve: (*server).postMetrics,
		},
	}
}
