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

// KubernetesVersion is the version of Kubernetes that is linked and reported by the API server.
const KubernetesVersion = "v1.36.4"

// runAPIServer starts the API server on the given listener and takes ownership of it. The API server's proxy
// connects to pods through dial. The cobra command is not used because it installs the process-wide signal handler.
func runAPIServer(ctx context.Context, l net.Listener, etcd string, creds *credentials,
	dial func(ctx context.Context, network, to string) (net.Conn, error), extra []string,
) (*component, error) {
	s := options.NewServerRunOptions()
	args := append([]string{
		"--etcd-servers=" + etcd,
		"--advertise-address=127.0.0.1",
		// Endpoints must not be loopback addresses, and there is no other address.
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + creds.servingCert,
		"--tls-private-key-file=" + creds.servingKey,
		"--token-auth-file=" + creds.tokenFile,
		// No client has such a certificate, but components that authenticate their clients require the ConfigMap
		// with these CAs.
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
		// It taints every new node, ready or not; see AddNodes. kube-controller-manager taints nodes that are not
		// ready.
		"--disable-admission-plugins=TaintNodesByCondition",
		// Otherwise, a single open watch delays the shutdown by the request timeout of 60 s.
		"--shutdown-send-retry-after",
		"--shutdown-watch-termination-grace-period=1s",
	}, extra...)
	if err := parse(s.Flags(), args, s.GenericServerRunOptions.ComponentGlobalsRegistry); err != nil {
		return nil, err
	}
	s.SecureServing.Listener = l
	s.SecureServing.BindAddress = l.Addr().(*net.TCPAddr).IP
	s.SecureServing.BindPort = l.Addr().(*net.TCPAddr).Port
	// The options start goroutines, so they are completed in the context of the component.
	return startComponent(ctx, "kube-apiserver", func(ctx context.Context) error {
		defer l.Close() // for errors before the server takes ownership
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

// served overrides the version of the API server. A binary that is built without Kubernetes' -ldflags, like every
// test binary, would report v0.0.0-master, which clients treat as an ancient release.
type served struct {
	compatibility.EffectiveVersion
}

func (v served) Info() *apimachineryversion.Info {
	info := v.EffectiveVersion.Info()
	info.GitVersion = KubernetesVersion
	return info
}

func setVersion(c *app.Config) {
	const unset = "v0.0.0-master+$Format:%H$" // value of component-base/version.gitVersion in the source
	if version.Get().GitVersion != unset {
		return
	}
	v := served{c.KubeAPIs.ControlPlane.Generic.EffectiveVersion}
	c.KubeAPIs.ControlPlane.Generic.EffectiveVersion = v
	c.ApiExtensions.GenericConfig.EffectiveVersion = v
	c.Aggregator.GenericConfig.EffectiveVersion = v
}

// parse parses the flags of a component and applies the global component options, like the cobra command does.
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
