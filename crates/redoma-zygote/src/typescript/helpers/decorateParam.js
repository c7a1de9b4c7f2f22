function decorateParam(index, decorator) {
  return (target, key) => decorator(target, key, index);
}
