package derive

import "context"

type bucketKey struct{}

// WithBucket returns a context whose calls a [Recorder] counts in a bucket of
// their route: what they have in common that changes how long they take, such as
// the model or the size of the prompt. Buckets are few: the size as "short" and
// "30k", not as a number of tokens.
func WithBucket(ctx context.Context, bucket string) context.Context {
	return context.WithValue(ctx, bucketKey{}, bucket)
}

// BucketFrom returns the bucket of a context; empty if it has none.
func BucketFrom(ctx context.Context) string {
	bucket, _ := ctx.Value(bucketKey{}).(string)
	return bucket
}
