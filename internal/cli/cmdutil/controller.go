package cmdutil

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// ControllerFlags select the controller. By default requests are sent through the proxy of the API server.
type ControllerFlags struct {
	ClusterFlags
	server, tokenFile, caFile string
	Component                 string // namespace of the controller
}

// Add adds the flags of [ClusterFlags.Add] and the flags of the controller, which are --server, --token-file,
// --ca-file and --central-namespace.
func (f *ControllerFlags) Add(flags *pflag.FlagSet, namespace string) {
	f.ClusterFlags.Add(flags, namespace)
	flags.StringVar(&f.server, "server", "",
		"URL of the controller, e.g. https://kubenergy.example.org (default: through the proxy of the API server)")
	flags.StringVar(&f.tokenFile, "token-file", "",
		"`file` with the token for --server (default: requested token of kubenergy-viewer)")
	flags.StringVar(&f.caFile, "ca-file", "",
		"`file` with trusted CA certificates for --server (default: system certificates)")
	flags.StringVar(&f.Component, "central-namespace", v1alpha1.SystemNamespace, "namespace of the controller")
}

const (
	controllerService = "https:kubenergy-controller:api"
	viewerAccount     = "kubenergy-viewer"
	tokenAudience     = "kubenergy"
	// TokenSeconds is the requested lifetime of tokens for the controller in seconds.
	TokenSeconds      = 600
	tokenHeader       = "X-Kubenergy-Token" // the API server consumes the Authorization header
	maxAnswer         = 256 << 20
	controllerTimeout = 2 * time.Minute
)

// ControllerClient is a client of the API of the controller.
type ControllerClient struct {
	client    *apiclient.Client
	token     map[string]string // header with the token; nil if the client reads it from a file
	Proxied   bool              // whether requests are sent through the API server
	namespace string            // namespace of the controller
	Home      string            // namespace of the kubeconfig
}

// Connect returns a client of the controller with a token. If the request is about a single namespace, a service
// account of that namespace may be used.
func (f *ControllerFlags) Connect(ctx context.Context, t Terminal, about ...string) (*ControllerClient, error) {
	if len(about) == 1 {
		f.Namespace = about[0]
	}
	if f.server != "" {
		return f.direct(ctx, t)
	}
	if f.tokenFile != "" || f.caFile != "" {
		return nil, UsageErrorf("--token-file and --ca-file require --server")
	}
	config, namespace, err := f.Config(t)
	if err != nil {
		return nil, err
	}
	return ThroughProxy(ctx, config, f.Component, namespace, t.Now)
}

// ThroughProxy returns a client that connects through the proxy of the API server.
func ThroughProxy(ctx context.Context, config *rest.Config, component, home string,
	now func() time.Time,
) (*ControllerClient, error) {
	transport, err := rest.TransportFor(config)
	host, _, errHost := rest.DefaultServerUrlFor(config)
	if err = errors.Join(err, errHost); err != nil {
		return nil, UsageErrorf("reading the kubeconfig: %s", OneLine(err))
	}
	c := &ControllerClient{Proxied: true, namespace: component, Home: home}
	if c.client, err = apiclient.New(apiclient.Options{
		URL: strings.TrimSuffix(host.String(), "/") + "/api/v1/namespaces/" + url.PathEscape(component) +
			"/services/" + controllerService + "/proxy",
		UserAgent: "kubenergy/" + Version(), Timeout: controllerTimeout, Now: now, Node: true, Transport: transport,
	}); err != nil {
		return nil, NewUsageError(err)
	}
	token, err := tokenFor(ctx, config, component, home)
	if err != nil {
		return nil, err
	}
	c.token = map[string]string{tokenHeader: token}
	return c, nil
}

// tokenFor returns a token for the controller. The token is only valid for the audience of the controller and
// belongs to the viewer account with access to everything, or to the viewer account of the user's namespace with
// access to that namespace. The user's own token is never sent, because a server that impersonates the controller
// could use it with all permissions of the user.
func tokenFor(ctx context.Context, config *rest.Config, component, home string) (string, error) {
	token, refused := viewerToken(ctx, config, component)
	if _, none := errors.AsType[*NoTokenError](refused); !none || home == "" || home == component {
		return token, refused
	}
	token, err := viewerToken(ctx, config, home)
	if _, none := errors.AsType[*NoTokenError](err); none {
		return "", refused
	}
	return token, err
}

// direct returns a client that connects to a URL. The token is read from the token file or requested as for the
// proxy.
func (f *ControllerFlags) direct(ctx context.Context, t Terminal) (*ControllerClient, error) {
	u, err := url.Parse(f.server)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, UsageErrorf("--server is not a URL: want https:// and a host, without a password or a query")
	}
	if u.Scheme == "http" && !slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, u.Hostname()) {
		return nil, UsageErrorf("--server is %s: tokens are only sent over https", u)
	}
	c := &ControllerClient{namespace: f.Component, Home: f.Namespace}
	if c.client, err = apiclient.New(apiclient.Options{
		URL: f.server, TokenFile: f.tokenFile, CAFile: f.caFile, UserAgent: "kubenergy/" + Version(),
		Timeout: controllerTimeout, Now: t.Now, Node: true,
	}); err != nil || f.tokenFile != "" {
		return c, err
	}
	config, namespace, err := f.Config(t)
	if err != nil {
		return nil, UsageErrorf("--token-file is not set and no token can be requested: %w", err)
	}
	token, err := tokenFor(ctx, config, f.Component, namespace)
	if _, none := errors.AsType[*NoTokenError](err); none {
		return nil, UsageErrorf("no token for --server is available: set --token-file to a " +
			"token of a service account " + viewerAccount + " (see docs/reference/reports.md)")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: set --token-file to use another token", err)
	}
	c.Home, c.token = namespace, map[string]string{"Authorization": "Bearer " + token}
	return c, nil
}

// NoTokenError is returned if the token cannot be created.
type NoTokenError struct{ text string }

func (e *NoTokenError) Error() string { return e.text }

// viewerToken requests a token of the viewer account in a namespace. Only the controller accepts it.
func viewerToken(ctx context.Context, config *rest.Config, namespace string) (string, error) {
	client, err := Clients(config)
	if err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{tokenAudience}, ExpirationSeconds: new(int64(TokenSeconds)),
	}}
	accounts := client.CoreV1().ServiceAccounts(namespace)
	answer, err := accounts.CreateToken(ctx, viewerAccount, request, metav1.CreateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", &NoTokenError{fmt.Sprintf("the controller is not installed: there is no service account %s in "+
			"namespace %s", viewerAccount, namespace)}
	case apierrors.IsForbidden(err):
		return "", &NoTokenError{fmt.Sprintf("you are not allowed to create a token for the controller: request the "+
			"permission to create serviceaccounts/token of %[1]s in namespace %[2]s, create an account %[1]s in your "+
			"own namespace (see docs/reference/reports.md), or use --server and --token-file",
			viewerAccount, namespace)}
	case err != nil:
		return "", fmt.Errorf("requesting a token: %s", OneLine(err))
	}
	return answer.Status.Token, nil
}

// Get requests JSON from the controller and decodes it. It returns the time of the server's clock.
func (c *ControllerClient) Get(ctx context.Context, path string, query url.Values, into any) (time.Time, error) {
	target := path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	header := map[string]string{"Accept": "application/json"}
	maps.Copy(header, c.token)
	answer, err := c.client.Do(ctx, &apiclient.Request{
		Method: http.MethodGet, Path: target, Header: header, Most: maxAnswer,
	})
	refused, _ := errors.AsType[*apiclient.Refused](err)
	var now time.Time
	switch {
	case refused != nil:
		return now, c.Refusal(refused.Status, path, refused.Body)
	case errors.Is(err, apiclient.ErrToken):
		return now, UsageErrorf("--token-file: %w", err)
	case errors.Is(err, apiclient.ErrTrust):
		return now, UsageErrorf("--ca-file: %w", err)
	case errors.Is(err, apiclient.ErrAnswer):
		return now, fmt.Errorf("%s: select a shorter interval or fewer groups", withoutURL(err))
	case err != nil:
		return now, fmt.Errorf("the controller cannot be reached: %s", withoutURL(err))
	}
	if now, err = http.ParseTime(answer.Header.Get("Date")); err != nil {
		now = answer.At
	}
	if err := json.Unmarshal(answer.Body, into); err != nil {
		return now, fmt.Errorf("decoding the response of the controller to %s: %s", path, OneLine(err))
	}
	return now, nil
}

// withoutURL removes the URL that net/http adds to errors, because a query may contain hundreds of names.
func withoutURL(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return OneLine(err)
}

// RefusedError is a response other than 200 of the controller, or of the API server on its behalf.
type RefusedError struct {
	Status int
	text   string
}

func (e *RefusedError) Error() string { return e.text }

// Refusal returns the [RefusedError] for a response to a request for path with a status other than 200. Its text
// explains the status and contains the reason of the body.
func (c *ControllerClient) Refusal(status int, path string, body []byte) error {
	var object metav1.Status
	if c.Proxied && json.Unmarshal(body, &object) == nil && object.Kind == "Status" {
		return &RefusedError{status, c.proxyRefusal(status, &object)}
	}
	var said api.Error
	_ = json.Unmarshal(body, &said) // proxies return other bodies
	text := Printable(cmp.Or(said.Error, http.StatusText(status)))
	switch status {
	case http.StatusUnauthorized:
		text = "the controller rejected the token: " + text
	case http.StatusForbidden:
		text = "the controller denied the request: " + text
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		text = fmt.Sprintf("the controller does not serve %s: it is too old for this command (%s)", path, text)
	case http.StatusServiceUnavailable:
		text = "the controller is not ready: " + text
	default:
		text = fmt.Sprintf("the controller returned %d: %s", status, text)
	}
	return &RefusedError{status, text}
}

// proxyRefusal explains responses of the API server itself.
func (c *ControllerClient) proxyRefusal(status int, object *metav1.Status) string {
	text := Printable(object.Message)
	switch status {
	case http.StatusNotFound:
		return fmt.Sprintf(
			"the controller is not installed: there is no service kubenergy-controller in namespace %s", c.namespace)
	case http.StatusForbidden:
		return fmt.Sprintf("you are not allowed to use the proxy of the API server: request the permission to get "+
			"services/proxy of %s in namespace %s, or use --server (%s)", controllerService, c.namespace, text)
	case http.StatusServiceUnavailable:
		return "the proxy of the API server cannot reach the controller, set --server to its address: " + text
	}
	return fmt.Sprintf("the API server returned %d: %s", status, text)
}

// Printable returns an untrusted text in a single line, truncated and without control characters.
func Printable(s string) string {
	invisible := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	return humanize.Truncated(strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "?"), invisible), " "), 400)
}

// SavingsSpan is the interval of displayed savings.
const SavingsSpan = 7 * 24 * time.Hour

// Names of the components, of their service accounts, and of the Leases that they hold.
const (
	SchedulerName  = kube.Scheduler
	ControllerName = "kubenergy-controller"
	HoldLease      = kube.HoldLease
)
