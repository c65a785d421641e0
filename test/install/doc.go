// Package install tests the Helm chart on a real API server: helm installs it and takes it away; everything that it can
// render, and every example, is accepted with strict validation; the admission policy suspends what it should; our
// accounts may do what they must, and no more.
package install
