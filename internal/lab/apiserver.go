package lab

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/pflag"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// KubernetesVersion is the release that this package links and that its API server reports.
const KubernetesVersion = "v1.36.4"

// runAPIServer starts the API server on the given listener, which it takes over; its proxy reaches pods through dial.
// The cobra command is avoided because it installs the process-wide signal handler.
func runAPIServer(ctx context.Context, l net.Listener, etcd string, creds *credentials,
	dial func(ctx context.Context, network, to string) (net.Conn, error), extra []string,
) (*component, error) {
	s := options.NewServerRunOptions()
	args := append([]string{
		"--etcd-servers=" + etcd,
		"--advertise-address=127.0.0.1",
		// Endpoints may not be loopback addresses, and we have no other.
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + creds.servingCert,
		"--tls-private-key-file=" + creds.servingKey,
		"--token-auth-file=" + creds.tokenFile,
		// No client has such certificates, but components that authenticate their callers look for the ConfigMap that
		// tells of the authorities.
		"--client-ca-file=" + creds.servingCert,
		"--requestheader-client-ca-file=" + creds.servingCert,
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + creds.signingKey,
		"--service-account-key-file=" + creds.signingKey,
		"--service-cluster-ip-range=" + serviceIPRange,
		"--allow-privileged",
		// It taints every new node, ready or not; see AddNodes. Nodes that are not ready get their taint from
		// kube-controller-manager.
		"--disable-admission-plugins=TaintNodesByCondition",
		// Otherwise one forgotten watch of a client delays the end by the request timeout, 60 s.
		"--shutdown-send-retry-after",
		"--shutdown-watch-termination-grace-period=1s",
	}, extra...)
	if err := parse(s.Flags(), args, s.GenericServerRunOptions.ComponentGlobalsRegistry); err != nil {
		return nil, err
	}
	s.SecureServing.Listener = l
	s.SecureServing.BindAddress = l.Addr().(*net.TCPAddr).IP
	s.SecureServing.BindPort = l.Addr().(*net.TCPAddr).Port
	// The options start goroutines of their own, so they are completed in the component's context.
	return startComponent(ctx, "kube-apiserver", func(ctx context.Context) error {
		defer l.Close() // for the errors before the server has taken it over
		completed, err := s.Complete(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(completed.Validate()...); err != nil {
			return err
		}
		config, err := app.NewConfig(completed)
		if err != nil {
			return err
		}
		config.KubeAPIs.ControlPlane.ProxyTransport.DialContext = dial
		setVersion(config)
		cc, err := config.Complete()
		if err != nil {
			return err
		}
		chain, err := app.CreateServerChain(cc)
		if err != nil {
			return err
		}
		prepared, err := chain.PrepareRun()
		if err != nil {
			return err
		}
		return prepared.Run(ctx)
	}), nil
}

// served is the API server's version without the help of the linker: a binary built without
// Kubernetes' own -ldflags, as every test binary is, would report v0.0.0-master, which clients take
// for an ancient release.
type served struct {
	compatibility.EffectiveVersion
}

func (v served) Info() *apimachineryversion.Info {
	info := v.EffectiveVersion.Info()
	info.GitVersion = KubernetesVersion
	return info
}

func setVersion(c *app.Config) {
	const unset = "v0.0.0-master+$Format:%H$" // component-base/version.gitVersion as it is in the source
	if version.Get().GitVersion != unset {
		return
	}
	v := served{c.KubeAPIs.ControlPlane.Generic.EffectiveVersion}
	c.KubeAPIs.ControlPlane.Generic.EffectiveVersion = v
	c.ApiExtensions.GenericConfig.EffectiveVersion = v
	c.Aggregator.GenericConfig.EffectiveVersion = v
}

// parse is what cobra would do with the flag sets of a component, and the component with the globals among them.
func parse(sets cliflag.NamedFlagSets, args []string, globals compatibility.ComponentGlobalsRegistry) error {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, f := range sets.FlagSets {
		fs.AddFlagSet(f)
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("argument %q is not a flag", fs.Arg(0))
	}
	return globals.Set()
}

func apiReady(client kubernetes.Interface) func(context.Context) bool {
	return func(ctx context.Context) bool {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil
	}
}
