/* SPDX-License-Identifier: MIT
 *
 * The kernels of tests/gpu, beside the library's: the double finds all by their names.
 */
#include "../gpu/kernels.cu"
