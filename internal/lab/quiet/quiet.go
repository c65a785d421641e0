// Package quiet discards the logs of the etcd client in the API server, which writes them to standard error, in
// particular warnings when etcd is stopped. The API server reports failed requests itself.
//
// The API server builds this logger when its package is initialized. Go initializes packages in the order of their
// import paths as soon as their dependencies are initialized, so this package precedes k8s.io/apiserver. It must
// therefore not import packages of Kubernetes.
package quiet

import "go.etcd.io/etcd/client/pkg/v3/logutil"

func init() {
	logutil.DefaultZapLoggerConfig.OutputPaths = nil
}
