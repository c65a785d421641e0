// Package cluster starts the lab's control plane and the KubEnergy scheduler for tests. It is for tests only.
package cluster

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/test/kit"
)

// Cluster is a control plane of the lab. A process can run only one Cluster.
type Cluster struct {
	*lab.Cluster
	Client kubernetes.Interface
	Dir    string // the path is short enough for the socket of etcd
}

// Start starts a control plane that is stopped when the test ends.
func Start(t testing.TB, o lab.Options) *Cluster {
	t.Helper()
	c := &Cluster{Dir: kit.Dir(t, "cluster")}
	if err := c.start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *Cluster) start(ctx context.Context, o lab.Options) (err error) {
	o.Dir = filepath.Join(c.Dir, "c")
	if c.Cluster, err = lab.Start(ctx, o); err != nil {
		return err
	}
	c.Client, err = kubernetes.NewForConfig(c.Config())
	return err
}

// Shared is a control plane that is shared by all tests of a package. Main starts it, unless go test runs with
// -short, and SetUp prepares it.
type Shared struct {
	Cluster
	Options lab.Options
	SetUp   func(context.Context, *Cluster) error
}

// Main starts the control plane, runs the tests and returns the exit code of the test binary.
func (s *Shared) Main(m *testing.M) int {
	for _, arg := range os.Args[1:] {
		if arg == "-test.short" || arg == "-test.short=true" {
			return m.Run()
		}
	}
	dir, err := os.MkdirTemp("", "cluster")
	if err == nil {
		defer os.RemoveAll(dir)
		s.Dir = dir
		err = s.start(context.Background(), s.Options)
	}
	if s.Cluster.Cluster != nil {
		defer func() { _ = s.Stop() }()
	}
	if err == nil && s.SetUp != nil {
		err = s.SetUp(context.Background(), &s.Cluster)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "setting up:", err)
		return 1
	}
	return m.Run()
}

// Nodes returns n nodes of equal capacity, named node-0000, node-0001 and so on.
func Nodes(n int) (nodes []lab.NodeSpec) {
	for i := range n {
		nodes = append(nodes, lab.NodeSpec{Name: fmt.Sprintf("node-%04d", i), Capacity: lab.Capacity(64, 256)})
	}
	return nodes
}

// AgentNamespace is the namespace in which the chart installs the agents.
const AgentNamespace = "kubenergy-agent"

func namespaceOf(account string) string {
	if account == "kubenergy-agent" {
		return AgentNamespace
	}
	return v1alpha1.SystemNamespace
}

// Account writes a kubeconfig with the permissions of a KubEnergy service account. It returns the path of the
// kubeconfig and the client configuration built from it.
func (c *Cluster) Account(t testing.TB, account string) (path string, config *rest.Config) {
	t.Helper()
	path = filepath.Join(c.Dir, account+".kubeconfig")
	token, err := c.Client.CoreV1().ServiceAccounts(namespaceOf(account)).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err == nil {
		for _, user := range kubeconfig.AuthInfos {
			user.Token = token.Status.Token
		}
		err = clientcmd.WriteToFile(*kubeconfig, path)
	}
	if err == nil {
		config, err = clientcmd.BuildConfigFromFlags("", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, config
}

// GuestKubeconfig writes the kubeconfig of a kubelet that runs in a QEMU guest and returns its path. The kubelet
// has the permissions of its node and reaches this machine as its gateway.
func (c *Cluster) GuestKubeconfig(t testing.TB, node string) (path string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range config.Clusters {
		at, err := url.Parse(one.Server)
		if err != nil {
			t.Fatal(err)
		}
		one.Server, one.TLSServerName = "https://10.0.2.2:"+at.Port(), "localhost"
	}
	for _, user := range config.AuthInfos {
		user.Impersonate, user.ImpersonateGroups = "system:node:"+node, []string{"system:nodes", "system:authenticated"}
	}
	path = filepath.Join(c.Dir, node+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Token returns a token of a KubEnergy service account for the controller. The token is bound to pod unless pod is
// nil.
func (c *Cluster) Token(t testing.TB, account string, pod *corev1.Pod) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{"kubenergy"}, ExpirationSeconds: new(int64(3600)),
	}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID,
		}
	}
	got, err := c.Client.CoreV1().ServiceAccounts(namespaceOf(account)).CreateToken(t.Context(), account, request,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Token
}

// Namespace creates a namespace unless it exists and waits for its default service account, because pods cannot be
// created without one.
func (c *Cluster) Namespace(t testing.TB, name string, labels map[string]string) string {
	t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := c.Client.CoreV1().Namespaces().Create(t.Context(), n, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	kit.Eventually(t, time.Minute, "the default service account exists in the namespace", func() bool {
		_, err := c.Client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	return name
}

// Leads waits until the scheduler holds the Lease of the hold loop and the loop has started.
func (c *Cluster) Leads(t testing.TB, s *Scheduler) {
	t.Helper()
	s.KeepsWindows(t, time.Minute)
	kit.Eventually(t, time.Minute, s.Name+" holds the Lease", func() bool {
		lease, err := c.Client.CoordinationV1().Leases(v1alpha1.SystemNamespace).Get(t.Context(), "kubenergy-hold",
			metav1.GetOptions{})
		return err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" &&
			strings.Contains(s.Output(), *lease.Spec.HolderIdentity)
	}, s.Process)
}
