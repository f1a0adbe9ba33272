/* The floor of the machine: what hand-written C needs for the work that no contender can avoid.
 *
 *   g(W) = (1/n) sum_i w_i CE_i(W) + (penalty/2) |W|^2,   S = X W',  P = softmax(S)
 *
 *   gradient   G = (1/n) (w (P - onehot(labels)))' X + penalty W,  stores P
 *   product    H = (1/n) (w P (T - <P, T>))' X + penalty V,  T = X V',  uses the stored P
 *   read_all   the sum of an array: nothing but reading it
 *   matvec     y = A x, as often as asked, on one thread
 *
 * X is (n, d), W, V, G and H are (10, d), P is (n, 10), all row-major float32; w is (n,) float32,
 * labels are (n,) int32. Each pass over X is fused: blocks of rows that stay in the cache between
 * the scores and the transposed product, so that X is read from memory once. Lanes run over the
 * features, so none is idle although there are only ten classes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLASSES 10
#define LANES 16
#define ROWS 32 /* 32 rows of 785 are 100 KB */

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define AT(pointer) (*(vec *)(pointer))
#define UNROLL _Pragma("GCC unroll 10")

static inline float sum(vec a) {
  float s = 0;
  for (int i = 0; i < LANES; i++) s += a[i];
  return s;
}

/* The first `count` numbers at p, and zeros. */
static inline vec load(const float *p, int count) {
  vec a = {0};
  if (count >= LANES) return AT(p);
  for (int i = 0; i < count; i++) a[i] = p[i];
  return a;
}

/* S = X V' for a block of m rows, two at a time; rows of V are padded with zeros to `stride`. */
static void scores(int m, int d, int stride, const float *X, const float *V, float *S) {
  for (int r = 0; r < m; r += 2) {
    const float *a = X + (size_t)r * d, *b = r + 1 < m ? a + d : a;
    vec A[CLASSES], B[CLASSES];
    for (int c = 0; c < CLASSES; c++) A[c] = B[c] = (vec){0};
    for (int j = 0; j < d; j += LANES) {
      vec xa = load(a + j, d - j), xb = load(b + j, d - j);
      UNROLL for (int c = 0; c < CLASSES; c++) {
        vec v = AT(V + (size_t)c * stride + j);
        A[c] += xa * v;
        B[c] += xb * v;
      }
    }
    for (int c = 0; c < CLASSES; c++) {
      S[r * CLASSES + c] = sum(A[c]);
      if (r + 1 < m) S[(r + 1) * CLASSES + c] = sum(B[c]);
    }
  }
}

/* G += R' X for a block of m rows, two vectors of features at a time. */
static void transposed(int m, int d, int stride, const float *X, const float *R, float *G) {
  for (int j = 0; j < d; j += 2 * LANES) {
    vec A[CLASSES], B[CLASSES];
    for (int c = 0; c < CLASSES; c++) {
      A[c] = AT(G + (size_t)c * stride + j);
      B[c] = AT(G + (size_t)c * stride + j + LANES);
    }
    for (int r = 0; r < m; r++) {
      const float *row = X + (size_t)r * d + j;
      vec xa = load(row, d - j), xb = load(row + LANES, d - j - LANES);
      UNROLL for (int c = 0; c < CLASSES; c++) {
        A[c] += R[r * CLASSES + c] * xa;
        B[c] += R[r * CLASSES + c] * xb;
      }
    }
    for (int c = 0; c < CLASSES; c++) {
      AT(G + (size_t)c * stride + j) = A[c];
      AT(G + (size_t)c * stride + j + LANES) = B[c];
    }
  }
}

/* The scores of a block become w (P - onehot). */
static void first_order(int m, const int *labels, const float *w, float *P, float *S) {
  for (int r = 0; r < m; r++) {
    float *s = S + r * CLASSES, *p = P + (size_t)r * CLASSES, top = s[0], total = 0;
    for (int c = 1; c < CLASSES; c++) top = s[c] > top ? s[c] : top;
    for (int c = 0; c < CLASSES; c++) total += p[c] = expf(s[c] - top);
    for (int c = 0; c < CLASSES; c++) s[c] = w[r] * (p[c] /= total);
    s[labels[r]] -= w[r];
  }
}

/* The scores of a block become w P (T - <P, T>). */
static void second_order(int m, const float *w, const float *P, float *S) {
  for (int r = 0; r < m; r++) {
    float *s = S + r * CLASSES, mean = 0;
    const float *p = P + (size_t)r * CLASSES;
    for (int c = 0; c < CLASSES; c++) mean += p[c] * s[c];
    for (int c = 0; c < CLASSES; c++) s[c] = w[r] * p[c] * (s[c] - mean);
  }
}

/* One fused pass over X; labels are NULL for a product. Returns 1 where memory is short. */
static int pass(int n, int d, const float *X, const int *labels, const float *w, float *P,
                const float *V, float penalty, float *out) {
  int stride = (d + 2 * LANES - 1) / (2 * LANES) * 2 * LANES, failed = 0;
  size_t size = (size_t)CLASSES * stride;
  float *padded = calloc(size, sizeof(float)), *total = calloc(size, sizeof(float));
  if (!padded || !total) return 1;
  for (int c = 0; c < CLASSES; c++) memcpy(padded + (size_t)c * stride, V + (size_t)c * d, 4 * d);
#pragma omp parallel
  {
    float *G = calloc(size, sizeof(float)), S[ROWS * CLASSES];
    if (!G) failed = 1;
#pragma omp for schedule(dynamic, 8)
    for (int row = 0; row < n; row += ROWS) {
      if (failed) continue;
      int m = n - row < ROWS ? n - row : ROWS;
      const float *block = X + (size_t)row * d;
      float *p = P + (size_t)row * CLASSES;
      scores(m, d, stride, block, padded, S);
      if (labels) first_order(m, labels + row, w + row, p, S);
      else second_order(m, w + row, p, S);
      transposed(m, d, stride, block, S, G);
    }
#pragma omp critical
    if (G)
      for (size_t i = 0; i < size; i++) total[i] += G[i];
    free(G);
  }
  for (int c = 0; c < CLASSES; c++)
    for (int j = 0; j < d; j++) {
      size_t i = (size_t)c * d + j;
      out[i] = total[(size_t)c * stride + j] / n + penalty * V[i];
    }
  free(padded);
  free(total);
  return failed;
}

int gradient(int n, int d, const float *X, const int *labels, const float *w, float *P,
             const float *W, float penalty, float *G) {
  return pass(n, d, X, labels, w, P, W, penalty, G);
}

int product(int n, int d, const float *X, const float *w, float *P, const float *V, float penalty,
            float *H) {
  return pass(n, d, X, NULL, w, P, V, penalty, H);
}

float read_all(long count, const float *X) {
  float total = 0;
#pragma omp parallel for reduction(+ : total)
  for (long i = 0; i < count; i++) total += X[i];
  return total;
}

void matvec(int repeats, int rows, int columns, const float *A, const float *x, float *y) {
  for (int k = 0; k < repeats; k++) {
    for (int i = 0; i < rows; i++) {
      float s = 0;
      for (int j = 0; j < columns; j++) s += A[(size_t)i * columns + j] * x[j];
      y[i] = s;
    }
    __asm__ volatile("" ::: "memory"); /* or the compiler does it once */
  }
}
