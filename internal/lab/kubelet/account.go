package kubelet

import (
	"fmt"
	"path/filepath"

	"github.com/google/renameio/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// accountDir is the directory of the service account for in-cluster clients.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

func (p *pod) kubeconfig() string { return filepath.Join(p.dir, "kubeconfig") }

// token returns a token of the pod's service account. It is renewed when less than a fifth of its lifetime remains.
func (p *pod) token(object *corev1.Pod, s *corev1.ServiceAccountTokenProjection) ([]byte, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: s.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: object.Name, UID: object.UID,
		},
	}}
	if s.Audience != "" {
		request.Spec.Audiences = []string{s.Audience}
	}
	account := object.Spec.ServiceAccountName
	got, err := p.kubelet.tokens.GetServiceAccountToken(object.Namespace, account, request)
	if err != nil {
		return nil, fmt.Errorf("requesting a token for service account %s: %w", account, err)
	}
	return []byte(got.Status.Token), nil
}

// writeKubeconfig writes a kubeconfig for out-of-cluster clients with the service account mounted by a container.
// The token is read from its file repeatedly.
func (p *pod) writeKubeconfig(object *corev1.Pod) error {
	dir, ok := p.account(object)
	if !ok {
		return nil
	}
	text, err := clientcmd.Write(*Kubeconfig(clientcmdapi.Cluster{
		Server: p.kubelet.Config.Host, CertificateAuthority: filepath.Join(dir, corev1.ServiceAccountRootCAKey),
	}, clientcmdapi.AuthInfo{TokenFile: filepath.Join(dir, corev1.ServiceAccountTokenKey)}, object.Namespace))
	if err != nil {
		return err
	}
	return renameio.WriteFile(p.kubeconfig(), text, 0o600) // atomically, so that readers never see partial content
}

// Kubeconfig returns a client configuration for the lab.
func Kubeconfig(cluster clientcmdapi.Cluster, user clientcmdapi.AuthInfo, namespace string) *clientcmdapi.Config {
	const name = "kubenergy-lab"
	config := clientcmdapi.NewConfig()
	config.Clusters[name], config.AuthInfos[name] = &cluster, &user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	config.CurrentContext = name
	return config
}

// account returns the directory of the service account mounted by one of the containers.
func (p *pod) account(object *corev1.Pod) (dir string, ok bool) {
	for i := range object.Spec.Containers {
		if dir, ok := p.mounts(&object.Spec.Containers[i]).find(accountDir); ok {
			return dir, true
		}
	}
	return "", false
}
