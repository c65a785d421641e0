package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
)

// testNow is the current time in all tests with a fake API server.
var testNow = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// apiServer is a fake API server that supports what the commands need. It stores objects, lists them in pages,
// applies patches like the real one, and checks permissions.
type apiServer struct {
	kubeconfig string
	version    string // minor version
	date       time.Time

	mu      sync.Mutex
	objects map[string]map[string]any // by path
	writes  int
	refused map[string]bool                                               // forbidden requests, e.g. "list pods"
	allowed func(user string, r *authorizationv1.ResourceAttributes) bool // result of SubjectAccessReviews
	// called before every write; a status other than 0 is returned to the client
	before func(method, path string) int
	served map[string][]string // resources by group and version
	// responses of the controller behind the proxy, by path; nil if there is no controller
	controller map[string]any
	busy       int // current number of requests
	busiest    int
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{
		version: "36", date: testNow, objects: map[string]map[string]any{}, refused: map[string]bool{},
		allowed: func(string, *authorizationv1.ResourceAttributes) bool { return true },
		served: map[string][]string{
			"admissionregistration.k8s.io/v1": {"mutatingadmissionpolicies"},
			"kubenergy.io/v1alpha1":           {"gridzones", "energypolicies", "powerprofiles", "energybudgets", "jobprofiles"},
		},
	}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, a.kubeconfig, server.URL)
	return a
}

func writeKubeconfig(t *testing.T, path, url string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: url}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
}

// add stores an object in the given collection, e.g. "/apis/batch/v1/namespaces/a/jobs".
func (a *apiServer) add(t *testing.T, path string, object metav1.Object) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if object.GetUID() == "" {
		object.SetUID(types.UID("uid-of-" + object.GetName()))
	}
	if parts := strings.Split(path, "/"); len(parts) > 3 && parts[len(parts)-3] == "namespaces" {
		object.SetNamespace(parts[len(parts)-2])
	}
	object.SetResourceVersion(strconv.Itoa(len(a.objects) + 1))
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	a.objects[path+"/"+object.GetName()] = m
}

// get returns a stored object.
func (a *apiServer) get(t *testing.T, path string) *unstructured.Unstructured {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok := a.objects[path]
	if !ok {
		t.Fatalf("object %s not found", path)
	}
	return &unstructured.Unstructured{Object: m}
}

func (a *apiServer) delete(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.objects, path)
}

// run runs a command line against the server.
func (a *apiServer) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), append(args, "--kubeconfig", a.kubeconfig), cmdutil.Terminal{
		Name: "kubenergy", Env: []string{"NO_COLOR=1", "COLUMNS=80"}, Out: &out, Err: &err, Now: func() time.Time {
			return testNow
		},
	})
	return code, out.String(), err.String()
}

// request is a parsed request path.
type request struct {
	collection, name, resource, namespace string
}

func readPath(path string) (r request) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	head := 2 // api/v1
	if parts[0] == "apis" {
		head = 3
	}
	rest := parts[min(head, len(parts)):]
	at := head
	if len(rest) >= 3 && rest[0] == "namespaces" {
		r.namespace = rest[1]
		rest, at = rest[2:], at+2
	}
	if len(rest) == 0 {
		return r
	}
	r.resource = rest[0]
	r.collection = "/" + strings.Join(parts[:at+1], "/")
	if len(rest) > 1 {
		r.name = rest[1]
	}
	return r
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	a.mu.Lock()
	a.busy++
	a.busiest = max(a.busiest, a.busy)
	a.mu.Unlock()
	body, _ := io.ReadAll(q.Body)
	w.Header().Set("Date", a.date.UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Type", "application/json")
	code, answer := a.answer(q, body)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
	a.mu.Lock()
	a.busy--
	a.mu.Unlock()
}

func failed(err *apierrors.StatusError) (int, any) {
	s := err.Status()
	s.APIVersion, s.Kind = "v1", "Status"
	return int(s.Code), s
}

func (a *apiServer) answer(q *http.Request, body []byte) (int, any) {
	if q.URL.Path == "/version" {
		return 200, map[string]string{"major": "1", "minor": a.version, "gitVersion": "v1." + a.version + ".4"}
	}
	if code, list, ok := a.discover(q.URL.Path); ok {
		return code, list
	}
	if path, ok := strings.CutPrefix(q.URL.Path, proxyPath); ok && a.controller != nil {
		if answer, asked := a.controller[path].(func(*http.Request) any); asked {
			return 200, answer(q)
		}
		return 200, a.controller[path]
	}
	r := readPath(q.URL.Path)
	verb := map[string]string{
		http.MethodGet: "get", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodPost: "create",
	}[q.Method]
	if verb == "get" && r.name == "" {
		verb = "list"
	}
	kind := schema.GroupResource{Resource: r.resource}
	if a.refused[verb+" "+r.resource] || r.namespace == "" && a.refused[verb+" all "+r.resource] {
		return failed(apierrors.NewForbidden(kind, r.name, errors.New("access denied")))
	}
	if verb != "get" && verb != "list" && a.before != nil {
		if code := a.before(q.Method, q.URL.Path); code != 0 {
			return failed(apierrors.NewGenericServerResponse(code, verb, kind, r.name, "requested by the test", 0,
				false))
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	path := r.collection + "/" + r.name
	object := a.objects[path]
	switch {
	case verb == "create":
		return a.review(body)
	case verb == "list":
		return a.list(q, r)
	case object == nil:
		return failed(apierrors.NewNotFound(kind, r.name))
	case verb == "delete":
		delete(a.objects, path)
		return 200, metav1.Status{Status: metav1.StatusSuccess}
	case verb == "patch":
		return a.patch(q.Header.Get("Content-Type"), path, body)
	}
	return 200, object
}

// discover returns the resources of a served group and version.
func (a *apiServer) discover(path string) (code int, list metav1.APIResourceList, ok bool) {
	group, isGroup := strings.CutPrefix(path, "/apis/")
	if !isGroup || strings.Count(group, "/") != 1 {
		return 0, list, false
	}
	names, served := a.served[group]
	if !served {
		return 404, list, true
	}
	list.GroupVersion = group
	for _, name := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return 200, list, true
}

// review handles the creation of a SelfSubjectReview, a SubjectAccessReview or a TokenRequest.
func (a *apiServer) review(body []byte) (int, any) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil) // clients may use any encoding
	if token, ok := object.(*authenticationv1.TokenRequest); ok {
		token.Status.Token = "made"
		return 201, token
	}
	if self, ok := object.(*authenticationv1.SelfSubjectReview); ok {
		self.CreationTimestamp = metav1.NewTime(a.date)
		return 201, self
	}
	r, ok := object.(*authorizationv1.SubjectAccessReview)
	if !ok {
		return failed(apierrors.NewBadRequest(fmt.Sprintf("%T: %v", object, err)))
	}
	r.Status.Allowed = a.allowed(r.Spec.User, r.Spec.ResourceAttributes)
	return 201, r
}

func (a *apiServer) list(q *http.Request, r request) (int, any) {
	query := q.URL.Query()
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return failed(apierrors.NewBadRequest(err.Error()))
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return failed(apierrors.NewBadRequest(err.Error()))
	}
	limit, _ := strconv.Atoi(query.Get("limit"))
	items, next := []any{}, ""
	for _, path := range slices.Sorted(maps.Keys(a.objects)) {
		at := readPath(path)
		if at.resource != r.resource || r.namespace != "" && at.namespace != r.namespace ||
			path <= query.Get("continue") {
			continue
		}
		o := unstructured.Unstructured{Object: a.objects[path]}
		if !byLabel.Matches(labels.Set(o.GetLabels())) || !byField.Matches(fieldsOf(&o)) {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = readPathOf(items[len(items)-1])
			break
		}
		items = append(items, a.objects[path])
	}
	list := map[string]any{"metadata": map[string]any{"continue": next}, "items": items}
	if kind, ok := listKinds[r.resource]; ok {
		list["kind"], list["apiVersion"] = kind, v1alpha1.GroupVersion.String()
	} else if r.resource == "namespaces" {
		list["kind"], list["apiVersion"] = "NamespaceList", "v1"
	}
	return 200, list
}

// listKinds maps resources to their list kinds, which are required by clients without a schema.
var listKinds = map[string]string{
	"gridzones": "GridZoneList", "powerprofiles": "PowerProfileList", "energypolicies": "EnergyPolicyList",
	"energybudgets": "EnergyBudgetList", "jobprofiles": "JobProfileList",
}

// readPathOf returns the path of an object, which is used as the token of the next page.
func readPathOf(object any) string {
	o := unstructured.Unstructured{Object: object.(map[string]any)}
	return "/apis/batch/v1/namespaces/" + o.GetNamespace() + "/jobs/" + o.GetName()
}

func fieldsOf(o *unstructured.Unstructured) fields.Set {
	set := fields.Set{"metadata.name": o.GetName()}
	for _, path := range []string{"spec.nodeName", "spec.schedulerName", "status.phase", "involvedObject.uid"} {
		set[path], _, _ = unstructured.NestedString(o.Object, strings.Split(path, ".")...)
	}
	return set
}

func (a *apiServer) patch(kind, path string, body []byte) (int, any) {
	before, err := json.Marshal(a.objects[path])
	if err != nil {
		return failed(apierrors.NewInternalError(err))
	}
	var after []byte
	switch kind {
	case "application/json-patch+json":
		patch, errDecode := jsonpatch.DecodePatch(body)
		if errDecode != nil {
			return failed(apierrors.NewBadRequest(errDecode.Error()))
		}
		after, err = patch.Apply(before)
	case "application/merge-patch+json":
		after, err = jsonpatch.MergePatch(before, body)
	default:
		return failed(apierrors.NewBadRequest("patches of type " + kind))
	}
	if err != nil {
		return failed(apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, path,
			field.ErrorList{field.Invalid(field.NewPath("patch"), "", err.Error())}))
	}
	var object map[string]any
	if err := json.Unmarshal(after, &object); err != nil {
		return failed(apierrors.NewBadRequest(err.Error()))
	}
	o := unstructured.Unstructured{Object: object}
	version, _ := strconv.Atoi(o.GetResourceVersion())
	o.SetResourceVersion(strconv.Itoa(version + 1000))
	a.objects[path] = object
	a.writes++
	return 200, object
}
