// Package stream tells a slow stream from a dead one by its content: framings,
// content classifiers, and the limits that a guarded body is held to. It is
// usable without the rest of weir.
package stream
