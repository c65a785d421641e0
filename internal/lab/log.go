package lab

import (
	"io"
	"os"
	"path/filepath"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

const logName = "lab.log"

// sink is a log file for the loggers of all components that accepts lines until it is closed. It outlives the file:
// upstream goroutines may still log after Stop, when the file is closed and their output must not appear on the
// terminal.
type sink struct {
	mu   sync.Mutex
	file *os.File // nil if closed
	late error    // returned by writes after close; nil to drop them silently
}

func newSink(dir string) (*sink, error) {
	f, err := os.OpenFile(filepath.Join(dir, logName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &sink{file: f}, err
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return len(p), s.late
	}
	return s.file.Write(p)
}

// Sync implements zapcore.WriteSyncer.
func (s *sink) Sync() error { return nil }

func (s *sink) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	file := s.file
	s.file = nil
	return file.Close()
}

// captureLogs redirects klog and gRPC, which are both process-wide, to the sink.
func (s *sink) captureLogs() {
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(s))))
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, s))
}

func (s *sink) zap() *zap.Logger {
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.ISO8601TimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), s, zap.WarnLevel)).Named("etcd")
}
