// Package batch holds plans over the pods that wait against a real control plane: what happens when others were
// quicker, when nodes go, and when nothing fits.
package batch
