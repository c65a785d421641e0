package lab

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/configz"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
)

// startControllerManager runs kube-controller-manager with its default controllers and client limits. extra is
// parsed last and takes precedence. It does not listen on a port, because its metrics are included in the API
// server's metrics.
func startControllerManager(ctx context.Context, client kubernetes.Interface, creds *credentials,
	extra []string,
) (*component, error) {
	s, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"--kubeconfig=" + creds.kubeconfig,
		"--secure-port=0",
		"--service-account-private-key-file=" + creds.signingKey,
		"--root-ca-file=" + creds.servingCert,
	}, extra...)
	args = append(args, "--leader-elect=false")
	known, disabled, aliases := app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()
	if err := parse(s.Flags(known, disabled, aliases), args, s.ComponentGlobalsRegistry); err != nil {
		return nil, err
	}
	c := startComponent(ctx, "kube-controller-manager", func(ctx context.Context) error {
		config, err := s.Config(ctx, known, disabled, aliases)
		if err != nil {
			return err
		}
		defer configz.Delete(app.ConfigzName)
		return app.Run(ctx, config.Complete())
	})
	// Pods cannot be created before this service account exists.
	err = c.wait(ctx, func(ctx context.Context) bool {
		_, err := client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	return c, err
}
